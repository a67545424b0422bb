"""The requests of an experiment: how many, when, and with which acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.replay.load import AcceptanceClass, Load, Shift, open_trace
from outrider.simulator.trace_names import TRACES

ALL = (AcceptanceClass("all", 1.0, (0.8, 0.6)),)
TWO = (AcceptanceClass("good", 0.75, (0.9, 0.8)), AcceptanceClass("bad", 0.25, (0.3, 0.1)))


def load(**changes: object) -> Load:
    return Load(**{"trace": "azure-conversation", "rate_factor": 2.0, "duration_s": 300.0, "classes": ALL} | changes)  # type: ignore[arg-type]


def test_the_same_values_give_the_same_requests_and_another_seed_other_classes() -> None:
    first = list(load(classes=TWO).requests(8192))
    assert first == list(load(classes=TWO).requests(8192))
    other = list(load(classes=TWO, seed=1).requests(8192))
    assert [one.arrival_s for one in first] == [one.arrival_s for one in other]
    assert [one.acceptance for one in first] != [one.acceptance for one in other]


def test_classes_come_in_their_shares_and_every_request_fits_the_model() -> None:
    requests = list(load(classes=TWO, duration_s=900.0).requests(1024))
    assert sum(one.acceptance == (0.9, 0.8) for one in requests) / len(requests) == pytest.approx(0.75, abs=0.02)
    assert all(one.prompt_tokens + one.output_tokens <= 1024 for one in requests)


def test_a_shift_changes_its_class_from_its_moment_on_and_nothing_else() -> None:
    shifted = load(classes=TWO, shifts=(Shift(100.0, (0.1, 0.0), "bad"),))
    for before, after in zip(load(classes=TWO).requests(8192), shifted.requests(8192), strict=True):
        moved = before.acceptance == (0.3, 0.1) and before.arrival_s >= 100.0
        assert after.acceptance == ((0.1, 0.0) if moved else before.acceptance)


def test_the_acceptance_of_a_moment_lies_between_those_of_the_classes() -> None:
    shifted = load(classes=TWO, shifts=(Shift(100.0, (0.1, 0.0)),))
    assert 0.3 < shifted.acceptance_at(99.0)[0] < 0.9
    assert shifted.acceptance_at(100.0)[0] == pytest.approx(0.1)


def test_a_trace_that_is_too_short_starts_again_at_the_same_rate(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    rows = [f"{1000 * second},10,20" for second in range(10)]
    path.write_text("\n".join(["timestamp_ms,input_length,output_length", *rows]))
    short = load(trace=str(path), duration_s=12.0)
    assert short.laps == 3
    assert [one.arrival_s for one in short.requests(8192)] == pytest.approx([0.5 * number for number in range(24)])
    assert len({one.id for one in short.requests(8192)}) == 24


@pytest.mark.parametrize("name", TRACES)
def test_every_trace_of_the_package_can_be_replayed(name: str) -> None:
    requests = list(load(trace=name, rate_factor=1.0, duration_s=60.0).requests(8192))
    assert requests
    assert all(0.0 <= one.arrival_s < 60.0 for one in requests)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "neither a trace by name", id="no file"),
        pytest.param("a,b\n1,2\n", "columns", id="another table"),
        pytest.param("timestamp_ms,input_length,output_length\n", "no request", id="empty"),
        pytest.param("timestamp_ms,input_length,output_length\n5\n", "not in the form", id="cut off"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=said) as caught:
        open_trace(str(path))
    assert "given.csv" in str(caught.value)
