"""The tables ``[permissions]``, ``[features]`` and ``[approval]`` of ``callboard.toml``: who may use which tool, when.

Their keys, their defaults, what each value may be, and what they amount to (``rules_of``) for the one decision per
call in ``tools/decision.py``. Nothing here runs the permission hook. ``callboard.config`` puts the tables together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from callboard.config_tables import ClassName, ServerConfig, Table, TemplateConfig
from callboard.tools.approval import ApprovalPolicy
from callboard.tools.decision import Rules
from callboard.tools.features import Features, Flag
from callboard.tools.permissions import OPERATORS, Condition, Permissions, Rule

_OPERATORS = (*OPERATORS, "present")

Pattern = Annotated[str, Field(min_length=1, max_length=200)]
Patterns = tuple[Pattern, ...]


class ConditionConfig(Table):
    """One condition on an argument, as in ``{ argument = "/path", under = "/srv" }``; exactly one operator."""

    argument: Annotated[str, Field(max_length=500)]
    equals: Any = None
    one_of: tuple[Any, ...] | None = None
    pattern: Pattern | None = None
    prefix: str | None = None
    under: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    present: bool | None = None

    @field_validator("argument")
    @classmethod
    def _check_pointer(cls, pointer: str) -> str:
        if not pointer.startswith("/"):
            raise ValueError("expected a JSON pointer such as '/path' or '/files/*/name'")
        return pointer

    @field_validator("under")
    @classmethod
    def _check_folder(cls, folder: str | None) -> str | None:
        if folder is not None and not folder.startswith("/"):
            raise ValueError("expected an absolute folder such as '/srv/data'")
        return folder

    @model_validator(mode="after")
    def _check_operator(self) -> Self:
        if sum(getattr(self, name) is not None for name in _OPERATORS) != 1:
            raise ValueError(f"expected exactly one of {', '.join(_OPERATORS)} beside argument")
        return self

    @property
    def condition(self) -> Condition:
        """The condition as the decision takes it."""
        operator = next(name for name in _OPERATORS if getattr(self, name) is not None)
        return Condition(argument=self.argument, operator=operator, value=getattr(self, operator))


class RuleConfig(Table):
    """One ``[[permissions.rules]]``: patterns of tools, users, teams and roles, and conditions on the arguments."""

    effect: Literal["allow", "deny"]
    tools: Annotated[Patterns, Field(min_length=1)] = ("*",)
    users: Patterns = ()
    teams: Patterns = ()
    roles: Patterns = ()
    when: tuple[ConditionConfig, ...] = ()
    unless: tuple[ConditionConfig, ...] = ()
    reason: Annotated[str, Field(max_length=500)] = ""


class PermissionsConfig(Table):
    """Who may use which tool. ``hook`` is ``module:function``, asked before each call that the rules permit."""

    default: Literal["allow", "deny"] = "allow"
    rules: Annotated[tuple[RuleConfig, ...], Field(max_length=1000)] = ()
    hook: ClassName | None = None
    hook_deadline_s: Annotated[float, Field(gt=0, le=60)] = 5.0

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        if self.default == "allow" and any(rule.effect == "allow" for rule in self.rules):
            raise ValueError(
                "expected default = 'deny' where a rule allows: otherwise that rule changes nothing"
            )
        return self


class FlagConfig(Table):
    """One feature flag, ``beta = true`` or a table. ``tools`` are behind it, besides those that name it themselves."""

    enabled: bool = True
    tools: Patterns = ()
    users: Patterns = ()
    teams: Patterns = ()
    roles: Patterns = ()


def _as_tables(flags: object) -> object:
    if not isinstance(flags, dict):
        return flags
    return {name: {"enabled": flag} if isinstance(flag, bool) else flag for name, flag in flags.items()}


FeaturesConfig = Annotated[dict[str, FlagConfig], BeforeValidator(_as_tables)]


class ApprovalConfig(Table):
    """Which tools ask a person at each call (``always``) or never; ``always`` wins.

    A call that nobody decided on for ``expires_s`` seconds is denied; 0: it waits for ever.
    """

    always: Patterns = ()
    never: Patterns = ()
    expires_s: Annotated[float, Field(ge=0, le=31_536_000)] = 86_400.0


def rules_of(
    permissions: PermissionsConfig,
    features: Mapping[str, FlagConfig],
    approval: ApprovalConfig,
    templates: Mapping[str, TemplateConfig],
    servers: Mapping[str, ServerConfig],
) -> Rules:
    """Give what the configuration says about tools, as the decision takes it."""
    return Rules(
        features=Features(flags={name: Flag(**dict(flag)) for name, flag in features.items()}),
        permissions=Permissions(
            rules=tuple(_rule(rule) for rule in permissions.rules),
            default=permissions.default,
            hook=permissions.hook or "",
            hook_deadline_s=permissions.hook_deadline_s,
        ),
        approval=ApprovalPolicy(
            always=approval.always,
            never=approval.never,
            servers={name: server.trust for name, server in servers.items()},
            expires_s=approval.expires_s or None,
        ),
        templates={name: template.allowed_tools for name, template in templates.items()},
        teams={name: server.teams for name, server in servers.items()},
    )


def _rule(rule: RuleConfig) -> Rule:
    return Rule(
        effect=rule.effect,
        tools=rule.tools,
        users=rule.users,
        teams=rule.teams,
        roles=rule.roles,
        when=tuple(one.condition for one in rule.when),
        unless=tuple(one.condition for one in rule.unless),
        reason=rule.reason,
    )
