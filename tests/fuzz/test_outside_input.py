"""What others send us is read or refused in our own words: no other error, whatever it is, and in a bounded time.

The short form of `make fuzz-parsers`, whose search is guided by coverage.
"""

from __future__ import annotations

import copy
import json
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.outside import READERS, seeds

HOSTILE: tuple[Any, ...] = (
    None, True, "", "x", "9" * 5000, "NaN", "+Inf", "-1", -1, 0, 2**53, 10**400, 1e308, float("nan"), float("inf"),
    [], {}, [[]], [None], {"a": {}}, [1, 2, 3], [[1, 2, 3]], "0" * 300, "\ud800", '"}) or vector(1) #',
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, by its path."""
    found = [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        found += places(inner, (*path, name))
    return found


def spoilt(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at one place."""
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


def encoded(document: Any) -> bytes:
    return (document if isinstance(document, str) else json.dumps(document)).encode(errors="replace")


@pytest.mark.parametrize("name", READERS)
def test_what_it_should_be_is_read(name: str) -> None:
    for document in seeds()[name]:
        READERS[name](encoded(document))


@pytest.mark.parametrize("name", READERS)
def test_any_place_of_a_document_may_hold_anything(name: str) -> None:
    """Many places, each with one of the hostile values, the same ones in every run."""
    chosen = random.Random(9)
    for document in seeds()[name]:
        everywhere = places(document)
        for _ in range(200):
            READERS[name](encoded(spoilt(document, chosen.choice(everywhere), chosen.choice(HOSTILE))))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_several_places_may(name: str, data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(seeds()[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        document = spoilt(document, data.draw(st.sampled_from(places(document))), data.draw(json_values))
    READERS[name](encoded(document))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(data=st.binary(max_size=400) | st.text(max_size=400).map(lambda text: text.encode(errors="replace")))
def test_any_bytes_may_come(name: str, data: bytes) -> None:
    READERS[name](data)


BOMBS = {
    "brackets without end": b"[" * 400_000,
    "objects without end": b'{"a":' * 200_000,
    "a number without end": b"9" * 400_000,
    "a line of dashes": b"-" * 400_000,
    "flags without end": b"--token" * 60_000,
    "keys that begin": b"-----BEGIN PRIVATE KEY-----" * 15_000,
    "addresses without end": b"https://a:b" * 40_000,
    "nothing but blanks": b"token" + b" " * 400_000 + b"=",
}
SECONDS = 60.0
"""Of processor time, for 400 KB; a quadratic reader takes hours, and would not let the suite end."""


@pytest.fixture
def ends() -> Iterator[None]:
    """Raises in the middle of what does not end."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"still not read after {SECONDS:.0f} s of processor time")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("ends")
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_costs_no_more_than_its_length(name: str, bomb: str) -> None:
    READERS[name](BOMBS[bomb])
