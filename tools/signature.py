"""A function's signature as a JSON Schema, and arguments checked and converted by it (through pydantic).

It decides what of a signature the model sees; it never calls the function. Called by the decorator. It is a
module of its own because importing pydantic and making a first model takes about 100 ms: a process that uses
no decorated tool does not pay for it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from callboard.tools.contract import ToolContext
from callboard.tools.errors import ArgumentsRefused, ToolDefinitionError

_SCHEMA_MAPS = frozenset({"properties", "$defs"})
_SCHEMA_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_SCHEMA_PLACES = frozenset({"items", "additionalProperties", "contains", "propertyNames"})
_REPORTED_ERRORS = 5


@dataclass(frozen=True, slots=True)
class CheckedSignature:
    """What is known of a tool's function: its schema, the model behind it, and where the context goes.

    ``names`` maps the model's field names to the function's parameters; they differ because pydantic keeps
    some names (``schema``, ``json``, ``_x``) for itself.
    """

    parameters: dict[str, Any]
    model: type[BaseModel]
    names: Mapping[str, str]
    context_names: tuple[str, ...]

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Give the keyword arguments of the call; what was left out keeps the function's own default.

        Raises ArgumentsRefused, which names each argument that does not fit.
        """
        try:
            checked = self.model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ArgumentsRefused(_refusal(error)) from error
        bound = {self.names[field]: getattr(checked, field) for field in checked.model_fields_set}
        return bound | dict.fromkeys(self.context_names, context)


def check_signature(
    function: Callable[..., Any], label: str, descriptions: Mapping[str, str], *, described: bool = True
) -> CheckedSignature:
    """Make the schema of ``function``; ``label`` is how errors name it, ``descriptions`` go by parameter.

    Not ``described``: it has no ``parameters``, which take longest.

    Raises ToolDefinitionError for ``*args``, ``**kwargs``, positional-only parameters, missing annotations
    and types that have no JSON Schema.
    """
    fields: dict[str, tuple[Any, FieldInfo]] = {}
    names: dict[str, str] = {}
    context_names: list[str] = []
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        hint = _hint(function, parameter, label)
        if _is_context(hint):
            context_names.append(parameter.name)
            continue
        field = f"argument_{index}"
        names[field] = parameter.name
        fields[field] = (hint, _field(parameter, hint, descriptions.get(parameter.name)))
    model = _model(fields, names, label)
    parameters = _schema(model, label) if described else {}
    return CheckedSignature(parameters, model, names, tuple(context_names))


def preload() -> None:
    """Load all that describing a first tool loads (8 MB, 100 ms), so that processes forked later have it."""
    create_model("Arguments", __config__=ConfigDict(extra="forbid"), x=(int, ...)).model_json_schema()


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, label: str) -> Any:
    where = f"{label}: parameter {parameter.name!r}"
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            raise ToolDefinitionError(
                f"{where} is *{parameter.name}: give one parameter of a list type instead"
            )
        case inspect.Parameter.VAR_KEYWORD:
            raise ToolDefinitionError(f"{where} is **{parameter.name}: name each parameter, or take one dict")
        case inspect.Parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(
                f"{where} is positional-only, but arguments come by name: remove the '/'"
            )
    if parameter.annotation is inspect.Parameter.empty:
        advice = "a method cannot be decorated; subclass Tool" if parameter.name == "self" else "add its type"
        raise ToolDefinitionError(f"{where} has no annotation: {advice}")
    carrier = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    module_names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(carrier, module_names, include_extras=True)[parameter.name]
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise ToolDefinitionError(
            f"{where} has the annotation {parameter.annotation!r}, which cannot be read ({error}): "
            "define or import that type at the top level of the module, before the tool"
        ) from error


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or ToolContext in typing.get_args(hint)


def _field(parameter: inspect.Parameter, hint: Any, description: str | None) -> FieldInfo:
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    described_in_hint = any(
        getattr(extra, "description", None) for extra in getattr(hint, "__metadata__", ())
    )
    if description is None or described_in_hint:
        field = Field(default, alias=parameter.name)
    else:
        field = Field(default, alias=parameter.name, description=description)
    return typing.cast(FieldInfo, field)


def _model(fields: dict[str, tuple[Any, FieldInfo]], names: Mapping[str, str], label: str) -> type[BaseModel]:
    definitions: dict[str, Any] = dict(fields)
    try:
        return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **definitions)
    except (PydanticUserError, TypeError) as error:
        raise ToolDefinitionError(_no_schema(fields, names, label, error)) from error


def _no_schema(
    fields: dict[str, tuple[Any, FieldInfo]], names: Mapping[str, str], label: str, error: Exception
) -> str:
    for name, (hint, _) in fields.items():
        try:
            TypeAdapter(hint)
        except (PydanticUserError, TypeError):
            return (
                f"{label}: parameter {names[name]!r} has the type {hint!r}, which has no JSON Schema: "
                "use plain types, a dataclass, a TypedDict or a pydantic model"
            )
    return f"{label}: no JSON Schema can be made of its parameters: {str(error).splitlines()[0]}"


def _schema(model: type[BaseModel], label: str) -> dict[str, Any]:
    try:
        schema = without_titles(model.model_json_schema(by_alias=True, mode="validation"))
    except PydanticUserError as error:
        raise ToolDefinitionError(
            f"{label}: no JSON Schema can be made of its parameters: {str(error).splitlines()[0]}"
        ) from error
    return {"type": "object", "properties": {}, **schema}


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop the ``title`` that pydantic gives every place of a schema: tokens that tell the model nothing."""
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            kept[key] = {name: without_titles(part) for name, part in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            kept[key] = [without_titles(part) if isinstance(part, dict) else part for part in value]
        elif key in _SCHEMA_PLACES and isinstance(value, dict):
            kept[key] = without_titles(value)
        else:
            kept[key] = value
    return kept


def _refusal(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'/'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in problems[:_REPORTED_ERRORS]
    ]
    more = len(problems) - len(shown)
    return "the arguments do not fit: " + "; ".join(shown) + (f"; and {more} more" if more else "")
