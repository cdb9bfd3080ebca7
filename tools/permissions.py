"""Whether a principal may use a tool, with these arguments: rules from the configuration, as values (FEATURES T5, T7).

Pure. A rule that denies wins over all that allow; where no rule speaks, the default does. It never asks the hook,
which is users' code and runs in a process of its own (``tools/permission_hook.py``). Called by ``tools/decision.py``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias

from callboard.tools.json_schema.values import frozen, is_number

Effect: TypeAlias = Literal["allow", "deny"]


class Principal(Protocol):
    """For whom a call is made; given when the conversation opens, and never changed from inside it."""

    @property
    def user(self) -> str:
        """The user's name, unique in the team."""
        ...

    @property
    def team(self) -> str:
        """The team's name."""
        ...

    @property
    def roles(self) -> tuple[str, ...]:
        """The user's roles."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that must hold of an argument: ``operator`` is a row of ``OPERATORS``, ``value`` what it compares with.

    ``argument`` is a JSON pointer (RFC 6901) into the arguments, in which ``*`` means every item or property.
    """

    argument: str
    operator: str
    value: Any

    def holds(self, arguments: Mapping[str, Any], *, in_doubt: bool) -> bool:
        """Say whether it holds; ``in_doubt`` stands for a value of a kind that the operator cannot judge.

        Where the pointer means several values, one is enough if ``in_doubt`` (a rule that takes something away),
        and all must comply if not. Where it means none, only ``present = false`` holds.
        """
        found = values_at(arguments, self.argument)
        if self.operator == "present":
            return bool(found) is bool(self.value)
        judged = [OPERATORS[self.operator](value, self.value) for value in found]
        certain = [in_doubt if one is None else one for one in judged]
        return bool(certain) and (any(certain) if in_doubt else all(certain))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the configuration: whom and what it is about, and what then holds.

    ``tools``, ``users``, ``teams`` and ``roles`` are patterns (``*``, ``time__*``); empty ``users``, ``teams`` or
    ``roles`` mean anybody. It applies when all of ``when`` hold and none of ``unless`` does.
    """

    effect: Effect
    tools: tuple[str, ...] = ("*",)
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    unless: tuple[Condition, ...] = ()
    reason: str = ""

    def is_about(self, tool: str, principal: Principal) -> bool:
        """True when tool and principal are meant, whatever the arguments."""
        return (
            _any_fits(self.tools, (tool,))
            and (not self.users or _any_fits(self.users, (principal.user,)))
            and (not self.teams or _any_fits(self.teams, (principal.team,)))
            and (not self.roles or _any_fits(self.roles, principal.roles))
        )

    def holds_for(self, arguments: Mapping[str, Any] | None) -> bool:
        """True when the arguments are meant, too; None asks whether the rule could allow, or surely denies."""
        denies = self.effect == "deny"
        if arguments is None:
            return not (denies and (self.when or self.unless))
        return all(condition.holds(arguments, in_doubt=denies) for condition in self.when) and not any(
            condition.holds(arguments, in_doubt=not denies) for condition in self.unless
        )


@dataclass(frozen=True, slots=True)
class Permission:
    """What the rules say, and which one said it."""

    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """All rules, and what holds where none speaks. ``hook`` is ``module:function``, or empty (docs/permissions.md)."""

    rules: tuple[Rule, ...] = ()
    default: Effect = "allow"
    hook: str = ""
    hook_deadline_s: float = 5.0

    def of(self, tool: str, principal: Principal, arguments: Mapping[str, Any] | None) -> Permission:
        """Decide, apart from the hook. ``arguments`` None: whether some call of the tool could be allowed at all."""
        about = [(n, rule) for n, rule in enumerate(self.rules, start=1) if rule.is_about(tool, principal)]
        for wanted in ("deny", "allow"):
            for number, rule in about:
                if rule.effect == wanted and rule.holds_for(arguments):
                    told = f": {rule.reason}" if rule.reason else ""
                    return Permission(wanted == "allow", f"rule {number}{told}")
        return Permission(self.default == "allow", "by default")


def values_at(arguments: Any, pointer: str) -> list[Any]:
    """Give the values that a JSON pointer means, ``*`` being every item or property; an empty list for none."""
    found = [arguments]
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = [inner for outer in found for inner in _step(outer, name)]
    return found


def _step(outer: Any, name: str) -> list[Any]:
    if isinstance(outer, Mapping):
        return list(outer.values()) if name == "*" else [outer[name]] if name in outer else []
    if isinstance(outer, list):
        if name == "*":
            return outer
        return [outer[int(name)]] if name.isdecimal() and int(name) < len(outer) else []
    return []


def _any_fits(patterns: Iterable[str], names: Iterable[str]) -> bool:
    listed = tuple(names)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in listed)


# ------------------------------------------------------------ operators: True, False, or None: cannot be judged
def _equals(value: Any, wanted: Any) -> bool:
    return frozen(value) == frozen(wanted)


def _one_of(value: Any, wanted: Any) -> bool:
    return any(_equals(value, one) for one in wanted)


def _pattern(value: Any, wanted: Any) -> bool | None:
    return fnmatchcase(value, wanted) if isinstance(value, str) else None


def _prefix(value: Any, wanted: Any) -> bool | None:
    return value.startswith(wanted) if isinstance(value, str) else None


def _under(value: Any, wanted: Any) -> bool | None:
    """An absolute path, ``..`` resolved by its letters (symbolic links are the tool's own business)."""
    if not isinstance(value, str) or "\0" in value or not value.startswith("/"):
        return None
    folder, path = posixpath.normpath(wanted), posixpath.normpath(value)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _at_least(value: Any, wanted: Any) -> bool | None:
    return bool(value >= wanted) if is_number(value) else None


def _at_most(value: Any, wanted: Any) -> bool | None:
    return bool(value <= wanted) if is_number(value) else None


OPERATORS: Mapping[str, Callable[[Any, Any], bool | None]] = {
    "equals": _equals,
    "one_of": _one_of,
    "pattern": _pattern,
    "prefix": _prefix,
    "under": _under,
    "at_least": _at_least,
    "at_most": _at_most,
}
