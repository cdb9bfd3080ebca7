"""The tools that come with Callboard, one module each for a call's process to load."""

BUILTIN_MODULES = (
    "callboard.tools.builtin.calculate",
    "callboard.tools.builtin.current_time",
    "callboard.tools.builtin.documents",
)
