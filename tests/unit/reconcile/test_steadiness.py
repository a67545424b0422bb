"""Which changes of a status are shown: the dead bands of sentences; those of numbers are seen in `test_status`."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.reconcile.steadiness import hard, same, steady

SHOWN = "with 109 requests in flight the first token takes 2000 ms; K 3 may yield 3.1% more"


def document(reason: str, **tuning: Any) -> dict[str, Any]:
    return {"tuning": {"schedule": "1-256:3", **tuning}, "capacity": {"reason": reason}, "conditions": []}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param(SHOWN, True, id="nothing new"),
        pytest.param(SHOWN.replace("109", "117"), True, id="a number that wavers"),
        pytest.param(SHOWN.replace("3.1%", "2.9%"), True, id="a share that wavers"),
        pytest.param(SHOWN.replace("3.1%", "7%"), True, id="a small share that wavers"),
        pytest.param(SHOWN.replace("3.1%", "9%"), False, id="a share that moved"),
        pytest.param(SHOWN.replace("3.1%", "3.1"), False, id="a share that became a number"),
        pytest.param(SHOWN.replace("109", "150"), False, id="a number that moved"),
        pytest.param(SHOWN.replace("K 3", "K 4"), False, id="a small whole number"),
        pytest.param(SHOWN.replace("K 3", "K 10"), False, id="one that grows a digit"),
        pytest.param(SHOWN.replace("may yield", "yields"), False, id="another sentence"),
    ],
)
def test_a_sentence_is_kept_while_its_numbers_only_waver(said: str, kept: bool) -> None:
    assert (steady(document(SHOWN), document(said))["capacity"]["reason"] == SHOWN) is kept


def test_with_news_the_newest_sentence_is_shown() -> None:
    said = SHOWN.replace("109", "110")
    assert steady(document(SHOWN), document(said, schedule="1-256:2"))["capacity"]["reason"] == said


def test_a_status_without_a_sentence_gets_one() -> None:
    assert steady({"conditions": []}, document(SHOWN)) == document(SHOWN)


def test_news_is_neither_a_sentence_nor_a_message() -> None:
    condition = {"type": "Ready", "status": "True", "message": "2 engines"}
    one = {**document(SHOWN), "conditions": [condition]}
    assert hard(one) == hard({**document("other"), "conditions": [{**condition, "message": "3 engines"}]})
    assert hard(one) != hard({**document(SHOWN), "conditions": [{**condition, "status": "False"}]})


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param("no schedule is predicted to gain more than 3.1% at this load", True, id="another way to say it"),
        pytest.param("K 4 may be better here; a look at it waits for its budget", True, id="a look that waits"),
        pytest.param("predicted gain 3.8% at the present load", False, id="something to do"),
        pytest.param("no tokens were generated in the window", False, id="nothing to judge"),
    ],
)
def test_of_sentences_by_which_nothing_is_to_be_done_the_first_stays(said: str, kept: bool) -> None:
    before, after = document(SHOWN), document(SHOWN)
    before["tuning"]["reason"], after["tuning"]["reason"] = "1-256:3 already yields most", said
    shown = steady(before, after)["tuning"]["reason"]
    assert (shown != said) is kept


def acknowledged(generation: int, **changes: Any) -> dict[str, Any]:
    message = f"2 engines acknowledged schedule {generation}"
    condition = {"type": "ScheduleApplied", "status": "True", "reason": "Acknowledged", "message": message, **changes}
    return {**document(SHOWN, generation=generation), "conditions": [condition]}


def test_a_generation_that_was_counted_up_is_nothing_new_by_itself() -> None:
    assert same(acknowledged(7), acknowledged(19))
    assert hard(acknowledged(7)) == hard(acknowledged(19))
    assert not same(acknowledged(7), acknowledged(19, reason="Delivering"))
    assert not same(acknowledged(7), acknowledged(7, message="3 engines acknowledged schedule 7"))
    assert not same(acknowledged(7), {**acknowledged(7), "tuning": {"schedule": "1-256:2", "generation": 7}})
