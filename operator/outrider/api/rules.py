"""Rules of the resource, and the base class of its parts.

A rule is written once and holds in two places: as CEL in the CRD, so that `kubectl apply` answers with our sentence,
and as Python on the parsed model, for whoever reads a resource without an API server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError


@dataclass(frozen=True, slots=True)
class Values:
    """A message with whole numbers in it, for both places: putting strings together costs CEL more than it may."""

    text: str
    """With ``%d`` for each value."""
    cel: tuple[str, ...]
    """The values for the API server."""
    of: Callable[[Any], tuple[int | None, ...]]
    """The same values of the parsed model."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition over several fields of one model."""

    cel: str
    """The condition for the API server; optional fields need ``has()``."""
    holds: Callable[[Any], bool]
    """The same condition on the parsed model."""
    message: str
    """What is wrong and what to do about it; it names the field."""
    path: str = ""
    """The field to blame, such as ``.minReplicas``; empty for the model itself."""
    values: Values | None = None
    """The message with values in it; where they cannot be worked out ``message`` stands in."""

    def sentence(self, model: Any) -> str:
        """What is wrong with this model."""
        return self.message if self.values is None else self.values.text % self.values.of(model)

    def as_schema(self) -> dict[str, str]:
        """The entry for ``x-kubernetes-validations``."""
        schema = {"rule": self.cel, "message": self.message}
        if self.values is not None:
            schema["messageExpression"] = f"'{self.values.text}'.format([{', '.join(self.values.cel)}])"
        return schema | {"fieldPath": self.path} if self.path else schema


class Part(BaseModel):
    """A piece of the resource: immutable, camelCase outside, and closed, so that a misspelt field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    takes_null: ClassVar[bool] = False
    """True for what the operator itself puts together, where None stands for a field that is left out."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_null(cls, values: Any) -> Any:
        """A line without a value is more often forgotten than meant. A server-side apply is refused as well; from any
        other the API server takes the line away."""
        empty = [name for name, value in values.items() if value is None] if isinstance(values, dict) else []
        if empty and not cls.takes_null:
            text = "has no value: remove the line, or give it one"
            raise PydanticCustomError("null", "{text}", {"text": text, "path": f".{empty[0]}"})
        return values

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        broken = [rule for rule in self.rules if not rule.holds(self)]
        if broken:
            text = "; ".join(rule.sentence(self) for rule in broken)
            raise PydanticCustomError("rule", "{text}", {"text": text, "path": broken[0].path})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.as_schema() for rule in cls.rules]
        return schema


@dataclass(frozen=True, slots=True)
class _Validations:
    """Rules for the schema of a type; those of the type that it was made from stay beside them."""

    rules: tuple[Rule, ...]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        schema.setdefault("x-kubernetes-validations", []).extend(rule.as_schema() for rule in self.rules)
        return schema


def judged(*rules: Rule) -> tuple[AfterValidator, _Validations]:
    """Metadata of a type that these rules decide on, ``self`` being the value, here and in the CRD."""

    def check(value: Any) -> Any:
        for rule in rules:
            if not rule.holds(value):
                raise PydanticCustomError("rule", "{text}", {"text": rule.message})
        return value

    return AfterValidator(check), _Validations(rules)


def _matches(pattern: str) -> str:
    quoted = pattern.replace("\\", "\\\\").replace("'", "\\'")
    return f"self.matches('{quoted}')"


def _compiled(pattern: str) -> re.Pattern[str]:
    """As RE2 reads it, where ``$`` is the very end and not also the place before a last line break."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern))


def matching(pattern: str, message: str) -> Rule:
    """A string must match ``pattern`` (RE2 syntax)."""
    compiled = _compiled(pattern)
    return Rule(_matches(pattern), lambda value: compiled.search(value) is not None, message)


def refusing(pattern: str, message: str) -> Rule:
    """A string must *not* match ``pattern`` (RE2 syntax)."""
    compiled = _compiled(pattern)
    return Rule(f"!{_matches(pattern)}", lambda value: compiled.search(value) is None, message)


def entries_matching(keys: str, values: str, message: str) -> Rule:
    """Keys and values of a map must match these patterns (RE2 syntax)."""
    key, value = _compiled(keys), _compiled(values)
    quoted = [pattern.replace("\\", "\\\\") for pattern in (keys, values)]
    return Rule(
        f"self.all(key, key.matches('{quoted[0]}') && self[key].matches('{quoted[1]}'))",
        lambda found: all(key.search(name) and value.search(text) for name, text in found.items()),
        message,
    )


def named() -> tuple[AfterValidator, Any]:
    """Metadata of a list whose items go by their name: that is how server-side apply tells them apart, so none is given
    twice."""

    def check(items: list[Any]) -> list[Any]:
        _refuse_twice([item.name for item in items], "name ")
        return items

    extra: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return AfterValidator(check), Field(json_schema_extra=extra)


def unique() -> tuple[AfterValidator, Any]:
    """Metadata of a list of words that are a set: the order means nothing, and none is given twice."""

    def check(items: list[str]) -> list[str]:
        _refuse_twice(items)
        return items

    return AfterValidator(check), Field(json_schema_extra={"x-kubernetes-list-type": "set"})


def _refuse_twice(words: list[str], what: str = "") -> None:
    twice = next((word for place, word in enumerate(words) if word in words[:place]), None)
    if twice is not None:
        raise PydanticCustomError("twice", "{text}", {"text": f"{what}{twice} is given twice: remove one of them"})
