"""The errors of the tools folder: one root, few children. They never leave their process."""

from __future__ import annotations


class ToolsError(Exception):
    """Root of all errors that the tools folder raises."""


class ToolDefinitionError(ToolsError):
    """A tool is written in a way that cannot work; the message names function, parameter and the mend."""


class ModuleFault(ToolsError):
    """A module of tools cannot be used: it does not import, holds no tool, or holds two of one name."""

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(f"tool module {module!r}: {reason}")
        self.module = module
        self.reason = reason

    def __reduce__(self) -> tuple[type[ModuleFault], tuple[str, str]]:
        return type(self), (self.module, self.reason)


class ToolFault(ToolsError):
    """Raised by a tool whose message the model should read word for word, without the type's name."""


class ArgumentsRefused(ToolFault):
    """The arguments do not fit the tool's signature; the message says which one and why."""
