"""What may be written on the command line, and how faults are told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.replay import notation
from outrider.simulator.workload import KINDS


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("15m", 900.0), ("1.5h", 5400.0)])
def test_durations(text: str, seconds: float) -> None:
    assert notation.duration_s(text) == seconds


@given(st.floats(0.0, 1.0))
def test_one_probability_is_that_of_every_draft_token(acceptance: float) -> None:
    curve = notation.curve(repr(acceptance))
    assert curve[0] == acceptance
    assert all(later == pytest.approx(earlier * acceptance) for earlier, later in pairwise(curve))


def test_a_curve_is_kept_as_it_is_written_and_a_kind_is_known_by_name() -> None:
    assert notation.curve("0.8,0.6,0.5") == (0.8, 0.6, 0.5)
    assert notation.curve("code") == KINDS["code"]


def test_classes_have_names_and_shares() -> None:
    chat, mail = notation.acceptance_classes(["chat@60", "mail=0.5,0.2@40%"])
    assert (chat.name, chat.share, chat.curve) == ("chat", 0.6, KINDS["chat"])
    assert (mail.name, mail.share, mail.curve) == ("mail", 0.4, (0.5, 0.2))
    assert notation.acceptance_classes(["0.7"])[0].share == 1.0


def test_a_shift_is_of_all_requests_or_of_a_class() -> None:
    classes = notation.acceptance_classes(["chat@60", "mail=0.5@40"])
    assert notation.shift("10m:0.4,0.1", classes).class_name is None
    moved = notation.shift("10m:mail=0.4,0.1", classes)
    assert (moved.at_s, moved.class_name, moved.curve) == (600.0, "mail", (0.4, 0.1))


CLASSES = notation.acceptance_classes(["chat@60", "mail=0.5@40"])


@pytest.mark.parametrize(
    ("read", "said"),
    [
        pytest.param(lambda: notation.duration_s("soon"), "write for example 90s", id="duration"),
        pytest.param(lambda: notation.duration_s("-5m"), "no duration", id="negative duration"),
        pytest.param(lambda: notation.curve("high"), "write one number", id="word"),
        pytest.param(lambda: notation.curve("1.2"), "leaves 0 to 1", id="above one"),
        pytest.param(lambda: notation.curve("nan"), "leaves 0 to 1", id="not a number"),
        pytest.param(lambda: notation.curve("0.5,0.6"), "increases", id="rising curve"),
        pytest.param(lambda: notation.acceptance_classes(["0.5@x"]), "no share", id="share"),
        pytest.param(lambda: notation.acceptance_classes(["a=0.5@50", "b=0.4@40"]), "add up to 90 %", id="shares"),
        pytest.param(lambda: notation.acceptance_classes(["0.5@50", "b=0.4@50"]), "need a name", id="unnamed"),
        pytest.param(lambda: notation.acceptance_classes(["a=0.5@50", "a=0.4@50"]), "same name", id="twice"),
        pytest.param(lambda: notation.shift("0.4", CLASSES), "TIME:CURVE", id="no time"),
        pytest.param(lambda: notation.shift("1m:code=0.4", CLASSES), "chat, mail", id="unknown class"),
    ],
)
def test_faults_say_what_was_expected(read: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read()
