"""How long an engine's steps took, by batch size, K and kind, as our plugin counts them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from outrider.core import engine_metrics as names
from outrider.core.engine_reader import EngineReader, whole

_Key = tuple[int, int, bool]


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


def read_cells(readers: Sequence[EngineReader]) -> tuple[StepCell, ...]:
    """The cells of all engines, added up, in ascending order; those without steps are left out."""
    steps = _sums(readers, names.STEPS, None)
    moving = {key for key, count in steps.items() if count > 0}  # of all that an engine ever counted, a few
    seconds, requests = (_sums(readers, aliases, moving) for aliases in (names.STEP_SECONDS, names.STEP_REQUESTS))
    return tuple(
        StepCell(*key, steps[key], seconds[key], requests[key])
        for key in sorted(moving)
        if seconds.get(key, 0.0) > 0 and requests.get(key, 0.0) > 0
    )


def _sums(
    readers: Sequence[EngineReader], aliases: Sequence[str], wanted: Collection[_Key] | None
) -> dict[_Key, float]:
    sums: dict[_Key, float] = defaultdict(float)
    for reader in readers:
        for key, rise in reader.increases(aliases, _key, wanted=wanted).items():
            sums[key] += rise
    return sums


def _key(labels: Mapping[str, str]) -> _Key | None:
    bucket, k = whole(labels.get("batch", "")), whole(labels.get("speculative_tokens", ""))
    return None if bucket is None or k is None else (bucket, k, labels.get("kind") == "mixed")
