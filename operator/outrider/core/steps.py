"""How long an engine's steps took, by batch size, K and kind, as our plugin counts them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outrider.core import engine_metrics as names
from outrider.core.engine_reader import EngineReader, whole

_COLUMNS = (names.STEPS, names.STEP_SECONDS, names.STEP_REQUESTS)
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


def read_cells(readers: Iterable[EngineReader]) -> tuple[StepCell, ...]:
    """The cells of all engines, added up, in ascending order; those without steps are left out."""
    sums: dict[_Key, list[float]] = defaultdict(lambda: [0.0] * len(_COLUMNS))
    for reader in readers:
        for column, aliases in enumerate(_COLUMNS):
            for key, rise in reader.increases(aliases, _key).items():
                sums[key][column] += rise
    return tuple(
        StepCell(*key, steps, seconds, requests)
        for key, (steps, seconds, requests) in sorted(sums.items())
        if steps > 0 and seconds > 0 and requests > 0
    )


def _key(labels: Mapping[str, str]) -> _Key | None:
    bucket, k = whole(labels.get("batch", "")), whole(labels.get("speculative_tokens", ""))
    return None if bucket is None or k is None else (bucket, k, labels.get("kind") == "mixed")
