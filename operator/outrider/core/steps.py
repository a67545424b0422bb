"""How long an engine's steps took, by batch size, K and kind, as our plugin counts them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from outrider.core import engine_metrics as names
from outrider.core.engine_reader import EngineReader, whole

_Key = tuple[int, int, bool]
Steps = Mapping[_Key, float]
"""Their number by batch bucket, K and whether they also ran prefill."""


@dataclass(frozen=True, slots=True)
class StepCell:
    """Steps of one batch bucket, K and kind: their number, their time and the requests in them."""

    batch_bucket: int
    """Upper bound of the bucket, a power of two."""
    num_speculative_tokens: int
    mixed: bool
    """Whether the steps also ran prefill."""
    steps: float
    seconds: float
    requests: float

    @property
    def mean_batch(self) -> float:
        """Requests a step."""
        return self.requests / self.steps

    @property
    def step_time_s(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps


def read_steps(reader: EngineReader) -> Steps:
    """The steps of one engine by cell, of all that it ever counted the few that moved."""
    return {key: rise for key, rise in reader.increases(names.STEPS, _key).items() if rise > 0}


def decode_steps(steps: Steps) -> dict[int, float]:
    """Those that ran no prefill, by K."""
    found: dict[int, float] = defaultdict(float)
    for (_, k, mixed), count in steps.items():
        if not mixed:
            found[k] += count
    return dict(found)


def read_cells(readers: Sequence[EngineReader], counted: Sequence[Steps]) -> tuple[StepCell, ...]:
    """The cells of all engines, added up, in ascending order; ``counted`` are their steps."""
    steps: dict[_Key, float] = defaultdict(float)
    for one in counted:
        for key, rise in one.items():
            steps[key] += rise
    seconds, requests = (_sums(readers, aliases, steps) for aliases in (names.STEP_SECONDS, names.STEP_REQUESTS))
    return tuple(
        StepCell(*key, steps[key], seconds[key], requests[key])
        for key in sorted(steps)
        if seconds.get(key, 0.0) > 0 and requests.get(key, 0.0) > 0
    )


def _sums(readers: Sequence[EngineReader], aliases: Sequence[str], wanted: Collection[_Key]) -> dict[_Key, float]:
    sums: dict[_Key, float] = defaultdict(float)
    for reader in readers:
        for key, rise in reader.increases(aliases, _key, wanted=wanted).items():
            sums[key] += rise
    return sums


def _key(labels: Mapping[str, str]) -> _Key | None:
    bucket, k = whole(labels.get("batch", "")), whole(labels.get("speculative_tokens", ""))
    return None if bucket is None or k is None else (bucket, k, labels.get("kind") == "mixed")
