"""Objects that are passed on: bounded in size and depth, whatever stands in them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from outrider.api.raw import RAW_DEPTH
from outrider.api.resource import parse
from outrider.errors import InvalidSpec
from tests.unit.api.bodies import Body, changed, example

AFFINITY, POD = "spec.placement.affinity", "spec.podTemplate.spec"
LIMITS = {AFFINITY: 8 * 1024, POD: 32 * 1024}


def refusal(path: str, value: Any) -> str:
    with pytest.raises(InvalidSpec) as refused:
        parse(changed(example(), {path: value}))
    return refused.value.message


def nested(depth: int) -> Body:
    value: Body = {"a": "a word is no level of its own"}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def filled(size: int) -> Body:
    """An object of so many bytes of JSON, with everything that JSON has in it."""
    value: Body = {"ä": ["\n", 1, -2.5, None, True, {}, [], "x"]}
    value["ä"][-1] += "x" * (size - len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()))
    return value


@pytest.mark.parametrize(("path", "limit"), LIMITS.items())
def test_a_size_at_the_limit_is_taken_as_it_is_and_one_byte_more_is_refused(path: str, limit: int) -> None:
    spec = parse(changed(example(), {path: filled(limit)})).spec
    assert filled(limit) in (spec.placement.affinity, spec.pod_template.spec)
    assert refusal(path, filled(limit + 1)) == f"{path}: more than {limit} bytes of JSON: shorten it"


def test_as_many_fields_are_taken_as_the_crd_admits() -> None:
    fields = {f"f{number}": 1 for number in range(64)}
    assert parse(changed(example(), {AFFINITY: fields})).spec.placement.affinity == fields
    assert refusal(AFFINITY, fields | {"one": 1}) == f"{AFFINITY}: more than 64 fields: remove some"


def test_sixteen_levels_are_taken_and_one_more_is_refused() -> None:
    assert parse(changed(example(), {AFFINITY: nested(RAW_DEPTH)})).spec.placement.affinity == nested(RAW_DEPTH)
    assert refusal(AFFINITY, nested(RAW_DEPTH + 1)) == f"{AFFINITY}: nested more than 16 levels deep: make it flatter"


def test_lists_count_as_levels() -> None:
    deep: list[Any] = []
    for _ in range(RAW_DEPTH):
        deep = [deep]
    assert "levels deep" in refusal(AFFINITY, {"a": deep})


def test_an_alias_that_grows_without_end_is_refused_before_it_does() -> None:
    row: list[Any] = ["lol"]
    for _ in range(RAW_DEPTH - 2):
        row = [row] * 1000
    assert "more than 8192 bytes of JSON" in refusal(AFFINITY, {"a": row})


def test_the_field_in_a_list_is_named() -> None:
    assert refusal("spec.networkPolicy.allowFrom", [{}, nested(40)]).startswith(
        "spec.networkPolicy.allowFrom[1]: nested"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**63, -(2**70), {1, 2}, b"bytes"])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    assert refusal(AFFINITY, {"a": [value]}).startswith(AFFINITY)
