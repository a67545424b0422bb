"""Which engine processes the samples of a store tell of."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.revisions.processes import Process, processes
from outrider.core.series import Series

TOKENS, START, CREATED = "vllm:generation_tokens_total", "process_start_time_seconds", "vllm:generation_tokens_created"


def of(name: str, values: Sequence[float], *, uid: str = "u1", first_s: float = 0.0, **labels: str) -> Series:
    """A series with a sample every five seconds."""
    samples = tuple((first_s + 5.0 * at, value) for at, value in enumerate(values))
    return Series(name, {"pod": f"chat-{uid}", "pod_uid": uid, "instance": "a:8000", **labels}, samples)


def told(series: list[Series]) -> list[tuple[str, float, float]]:
    """Name, first and last sample of the tokens of each process."""
    found = []
    for one in processes(series):
        (tokens,) = (own for own in one.series if own.name == TOKENS)
        found.append((one.name, tokens.samples[0][0], tokens.last[0]))
    return found


def test_a_process_goes_on_as_long_as_its_start_is_the_same() -> None:
    assert told([of(TOKENS, range(5)), of(START, [100.0] * 5)]) == [("u1@100", 0.0, 20.0)]


def test_a_restart_in_place_is_another_process() -> None:
    series = [of(TOKENS, [5, 6, 0, 1, 2]), of(START, [100.0, 100.0, 112.0, 112.0, 112.0])]
    assert told(series) == [("u1@100", 0.0, 5.0), ("u1@112", 10.0, 20.0)]


def test_a_pod_made_anew_under_its_name_is_another_process() -> None:
    series = [of(TOKENS, [5, 6]), of(START, [100.0, 100.0])]
    series += [of(one, [value, value], uid="u2", first_s=10.0) for one, value in ((TOKENS, 1.0), (START, 100.0))]
    assert [name for name, *_ in told(series)] == ["u1@100", "u2@100"]


def test_processes_come_in_order_of_their_first_sample() -> None:
    series = [of(TOKENS, [1.0], uid="a", first_s=30.0), of(TOKENS, [1.0], uid="b")]
    assert [one.pod for one in processes(series)] == ["b", "a"]


def test_another_process_in_the_pod_tells_nothing_of_the_engine() -> None:
    other = of(START, [1.0, 2.0, 3.0], instance="a:9090")
    assert told([of(TOKENS, [1, 2, 3]), of(START, [100.0] * 3), other]) == [("u1@100", 0.0, 10.0)]


def test_without_a_process_start_the_engine_itself_tells() -> None:
    series = [of(TOKENS, [5, 0, 1]), of(CREATED, [100.0, 108.0, 108.0])]
    assert [name for name, *_ in told(series)] == ["u1@100", "u1@108"]


def test_without_either_a_pod_is_one_process() -> None:
    assert told([of(TOKENS, [5, 0, 1])]) == [("u1@0", 0.0, 10.0)]


def test_two_scrapes_of_one_process_are_one_process() -> None:
    series = [of(one, [100.0] * 3, job=job) for one in (TOKENS, START) for job in ("x", "y")]
    (found,) = processes(series)
    assert len(found.series) == 4


def test_track_and_revision_are_those_of_the_pod() -> None:
    labels = {"serving_outrider_dev_track": "candidate", "serving_outrider_dev_revision": "r2"}
    (found,) = processes([of(TOKENS, [1.0], **labels)])
    assert (found.candidate, found.revision) == (True, "r2")
    (bare,) = processes([of(TOKENS, [1.0])])
    assert (bare.candidate, bare.revision) == (False, "")


def test_a_scrape_without_the_uid_goes_by_the_name_of_the_pod() -> None:
    one = Series(TOKENS, {"pod": "chat-a"}, ((0.0, 1.0),))
    (found,) = processes([one])
    assert isinstance(found, Process)
    assert found.pod == "chat-a"


def test_a_pod_without_an_engine_is_none() -> None:
    assert processes([of(START, [100.0, 100.0])]) == []
