"""``callboard tools test``: for who writes tools: are they fit for models, and what does a call of one give?

It loads the modules as a system does, and starts none. The checks are ``callboard/testing/tool_checks.py``'s.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callboard.cli import options
from callboard.cli.exits import FOUND_FAULTS, OK, reported
from callboard.cli.options import Flags
from callboard.errors import ConfigError, Refused, ToolNotFound

if TYPE_CHECKING:
    from callboard.config import Config
    from callboard.gateway.terminal.look import Look
    from callboard.testing.tools import Checked
    from callboard.tools.content import ToolResult

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Only these tools; patterns like 'git_*', too."),
]
ModuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        metavar="FILE",
        help="Tools in this .py file or module, instead of the configuration's; may be repeated.",
    ),
]
ArgumentsOption = Annotated[
    str | None,
    typer.Option("--arguments", metavar="JSON", help="Call the one tool that NAME means with this object."),
]


@reported
def test_tools(
    names: NamesArgument = None,
    module: ModuleOption = None,
    arguments: ArgumentsOption = None,
    config: options.ConfigOption = None,
    deadline: options.ToolDeadlineOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """Check the tools that you write; 1 when one is not fit for models.

    Looks at names, descriptions, schemas and annotations. With --arguments, the one tool named is called, in a real
    worker with its own limits, and nobody is asked; an error is a fault. No system runs and no model is asked.

    \b
    Examples:
      callboard tools test
      callboard tools test --module ./my_tools.py
      callboard tools test add --module ./my_tools.py --arguments '{"a": 1, "b": 2}'
    """
    from callboard.gateway.terminal.look import look_of
    from callboard.testing.tools import check_tools
    from callboard.tools.content import result_to_json

    flags = Flags(config=config, tools_from=tuple(module or ()))
    given = _loaded(flags)
    checked = _chosen(check_tools(_modules(given, flags), _limits(given)), names or ())
    result = None if arguments is None else _called(checked, arguments, deadline)
    if as_json:
        rows = [_row(one) for one in checked]
        called = None if result is None else result_to_json(result)
        typer.echo(json.dumps({"tools": rows, "called": called}, indent=2))
    else:
        typer.echo("\n".join(_lines(checked, result, look_of(sys.stdout, os.environ))))
    failed = any(one.faults for one in checked) or (result is not None and result.is_error)
    return FOUND_FAULTS if failed else OK


def _loaded(flags: Flags) -> Config:
    try:
        return flags.load()
    except ConfigError as fault:
        raise ConfigError(str(fault).replace("--tools-from", "--module")) from fault


def _modules(config: Config, flags: Flags) -> tuple[str, ...]:
    from callboard.tools.packages import modules_of_packages

    if flags.tools_from:
        return tuple(module for module in config.tools.modules if module in flags.named_modules)
    found = tuple(dict.fromkeys((*config.tools.modules, *modules_of_packages(config.tools.packages))))
    if not found:
        raise Refused("there is nothing to test: name a module by --module, or in [tools] modules")
    return found


def _limits(config: Config) -> Mapping[str, Any]:
    from callboard.settings import settings_of

    return settings_of(config, Path(), Path()).tool_limits


def _chosen(checked: Sequence[Checked], names: Sequence[str]) -> list[Checked]:
    """Those that the names mean, and the modules that cannot be used: the tool may have been in one of them."""
    from callboard.tools.decision import match_patterns, unmatched_patterns

    known = [one.name for one in checked if one.spec is not None]
    broken = [one for one in checked if one.spec is None]
    missing = unmatched_patterns(names, known)
    if missing and not broken:
        raise ToolNotFound(f"there is no tool {missing[0]!r} here; there are: {', '.join(sorted(known))}")
    wanted = match_patterns(names, known) if names else frozenset(known)
    return [*broken, *(one for one in checked if one.spec is not None and one.name in wanted)]


def _called(checked: Sequence[Checked], arguments: str, deadline_s: float | None) -> ToolResult | None:
    from callboard.one_call import run_one
    from callboard.tools.arguments import ArgumentFault, parse_arguments
    from callboard.tools.content import error_result

    specs = [one.spec for one in checked if one.spec is not None]
    if len(specs) != 1:
        raise Refused(f"--arguments is for one tool; {len(specs)} are meant: give its NAME")
    (spec,) = specs
    parsed = parse_arguments(arguments, spec.parameters)
    if isinstance(parsed, ArgumentFault):
        return error_result(parsed.message)
    return run_one(
        dataclasses.replace(spec, deadline_s=min(spec.deadline_s, deadline_s or spec.deadline_s)), parsed
    )


def _row(one: Checked) -> dict[str, Any]:
    tool = None if one.spec is None else one.spec.name
    return {"tool": tool, "module": one.module, "ok": not one.faults, "faults": list(one.faults)}


def _lines(checked: Sequence[Checked], result: ToolResult | None, look: Look) -> list[str]:
    from callboard.gateway.terminal.plain import cells, clean, one_line, pad
    from callboard.tool_call import shown

    lines = []
    width = max((cells(one_line(one.name)) for one in checked if one.spec is not None), default=0)
    for one in checked:
        mark = look.paint(look.bad, "red") if one.faults else look.paint(look.good, "green")
        where = "" if one.spec is None else f"  {look.paint(one_line(one.module), 'dim')}"
        lines.append(f"{mark} {pad(one_line(one.name), width)}{where}")
        lines += [f"    {one_line(fault)}" for fault in one.faults]
    if result is not None:
        mark = look.paint(look.bad, "red") if result.is_error else look.paint(look.good, "green")
        output = [f"    printed: {line}" for line in clean(result.output).splitlines()]
        lines += [
            "",
            f"{mark} the call gave",
            *(f"    {line}" for line in clean(shown(result)).splitlines()),
            *output,
        ]
    return lines
