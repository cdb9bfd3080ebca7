"""The options that commands share, and what the configuration flags among them add up to.

Only declarations and their values; nothing is opened here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from callboard.config import Config

_CONFIGURATION = "Configuration (starts a private system)"


def _seconds(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 7 * 86400:
        raise typer.BadParameter("expected a number of seconds greater than 0")
    return value


NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which of your systems; 'default' if not given.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Use this file; starts a private system."),
]
BaseUrlOption = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint; starts a private system."),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The model's name; starts a private system.")
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="The endpoint's key; others on this machine may see it, OPENAI_API_KEY they may not.",
    ),
]
ToolsFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tools-from",
        metavar="FILE",
        help="Tools of your own, from a .py file or a module; may be repeated; starts a private system.",
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option("--tools", metavar="A,B", help="Enable these tools instead of the template's."),
]
TemplateOption = Annotated[
    str, typer.Option("--template", metavar="NAME", help="The template to start the conversation from.")
]
TeamOption = Annotated[str, typer.Option("--team", metavar="NAME", help="Which team's; none if not given.")]
UserOption = Annotated[str, typer.Option("--user", metavar="NAME", help="For which user; none if not given.")]
DeadlineOption = Annotated[
    float | None,
    typer.Option("--deadline", metavar="SECONDS", callback=_seconds, help="End the turn after this long."),
]
ToolDeadlineOption = Annotated[
    float | None,
    typer.Option(
        "--tool-deadline", metavar="SECONDS", callback=_seconds, help="Kill each tool call after this long."
    ),
]
ApproveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--approve",
        metavar="NAME|all",
        help="Approve of calls of this tool that wait for a person (a pattern; may be repeated).",
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Download the embedded model's weights without asking.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The configuration flags of one command line."""

    config: Path | None = None
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None
    tools_from: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """True when there is any, so that the command starts a private system."""
        return self != Flags()

    @property
    def named_modules(self) -> frozenset[str]:
        """The modules of ``--tools-from``, as the configuration names them: files by their whole path."""
        files = (str(Path(given).expanduser().resolve()) for given in self.tools_from)
        return frozenset((*self.tools_from, *files))

    def load(self) -> Config:
        """Load the file that was given or is found, with the other flags over it; raises ConfigError."""
        from callboard.config import discover_config, load_config

        found = load_config(self.config) if self.config is not None else discover_config(Path.cwd())
        return found.with_flags(
            base_url=self.base_url, model=self.model, api_key=self.api_key, tools_from=self.tools_from
        )


def system_name(context: typer.Context, name: str | None) -> str:
    """Give the system's name: the command's own ``--name``, the one before the command, else ``default``."""
    from callboard.paths import checked_name

    before = context.find_root().params.get("name")
    return checked_name(name or before or "default")


def tool_names(tools: str | None) -> list[str] | None:
    """Give the names of ``--tools a,b``; None when it was not given."""
    if tools is None:
        return None
    return [name.strip() for name in tools.split(",") if name.strip()]
