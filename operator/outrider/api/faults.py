"""Faults of a resource's form in words of ours, each with the path of the field and the remedy.

Words of pydantic's own are about Python, "valid dictionary or instance of Draft", and name no way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from outrider.api.fields import (
    LABEL_NAME_PATTERN,
    OBJECT_NAME_PATTERN,
    QUANTITY_PATTERN,
    REVISION_PATTERN,
    VERSION_PATTERN,
    WORD_PATTERN,
)

_FORMS = {
    QUANTITY_PATTERN: "must be a number with or without one of the units Ki, Mi, Gi, Ti, k, M, G, T and m, for example"
    " 64Gi or 500m",
    VERSION_PATTERN: "must be the three numbers of a version and nothing before them, for example 0.33.0",
    OBJECT_NAME_PATTERN: "must be the name of an object: small letters, digits, dashes and dots, beginning and ending"
    " with a letter or digit",
    LABEL_NAME_PATTERN: "must hold small letters, digits and dashes only, beginning and ending with a letter or digit",
    WORD_PATTERN: "must be one word of letters, digits, underscores, dots and dashes",
    REVISION_PATTERN: "must be a commit, tag or branch: letters, digits, underscores, dots, slashes and dashes",
}
_KINDS = {
    "int": "must be a whole number, without quotes and without a unit",
    "bool": "must be true or false, without quotes",
    "list": "must be a list: begin a line with a dash for each item",
    "block": "must be a block of fields, each on a line of its own, or {field: value}",
}
_TYPES = {
    "int_type": "int",
    "int_from_float": "int",
    "bool_type": "bool",
    "list_type": "list",
    "dict_type": "block",
    "model_type": "block",
    "model_attributes_type": "block",
}


def path_of(fault: Mapping[str, Any]) -> str:
    """The field as its author wrote it, such as ``spec.engine.env[0].name``."""
    path = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in fault["loc"])
    return (path + str(fault.get("ctx", {}).get("path", ""))).removeprefix(".")


def in_words(fault: Mapping[str, Any]) -> str:
    """What is wrong with the field and what to do about it; an unknown field is its caller's to explain.

    ``fault`` is one of pydantic's ``ValidationError.errors()``.
    """
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "missing":
        return f"is needed: add it (kubectl explain {_explained(fault['loc'])})"
    if kind == "string_type":
        return f"must be text, and YAML reads {_read_as(fault['input'])}: put it in quotes"
    if kind == "string_pattern_mismatch":
        return _FORMS.get(context["pattern"], f"must match {context['pattern']}")
    if kind == "literal_error":
        return _one_of(context["expected"], fault["input"])
    if kind in _TYPES:
        return _KINDS[_TYPES[kind]]
    text = str(fault["msg"])
    for opening in ("Input should", "String should", "List should", "Dictionary should"):
        text = text.replace(opening, "must", 1)
    return text


def _explained(place: tuple[str | int, ...]) -> str:
    return ".".join(["sis", *(item for item in place if isinstance(item, str))])


def _read_as(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean here"
    if isinstance(value, int | float):
        return "a number here"
    return "a list here" if isinstance(value, list) else "a block of fields here"


def _one_of(expected: str, given: Any) -> str:
    text = f"must be {expected}"
    if isinstance(given, bool) and "'Off'" in expected:
        return f"{text}; write the word in quotes: YAML reads a bare Off as a boolean"
    words = expected.replace(" or ", ", ").split(", ")
    by_plain = {word.strip("'").lower().replace("_", ""): word.strip("'") for word in words}
    plain = str(given).lower().replace("_", "").replace("-", "")
    near = get_close_matches(plain, by_plain, n=1, cutoff=0.8)
    return f"{text}; did you mean {by_plain[near[0]]}?" if near else text
