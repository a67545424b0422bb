"""A measured profile as the estimator reads it: points, step times, and the prior that they make.

A profile document holds what one model, drafter and card did when measured: step time by batch and K in a closed loop
(``rows``), the same without a drafter (``no_drafter``), and the prefill time of one prompt (``prefill``). A service on
like hardware may start from it instead of from the generic shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.core.latency import LatencyModel, fit_points
from outrider.core.step_time import GENERIC, Law, Points, points_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """Arrays of one length, a row each; those without a drafter come last."""

    points: Points
    times_s: Floats
    capture_size: int
    """Largest captured CUDA graph in tokens, the same for all rows."""
    acceptance: tuple[float, ...]
    """Unconditional acceptance by position; empty where the document has none."""
    prefill_tokens: tuple[float, ...]
    prefill_s: tuple[float, ...]
    """Seconds of a step that runs so many prompt tokens."""

    def model(self) -> LatencyModel:
        """Fitted to all rows, with a drafter."""
        return fit_points(self.points, self.times_s, np.ones_like(self.times_s), self._start)

    def prior(self) -> Law:
        """The law of all rows, for `latency.fit`."""
        return self.model().law

    def acceptance_length(self, num_speculative_tokens: int) -> float:
        """E(K) = 1 + the sum of the acceptance of the first K positions."""
        return 1.0 + sum(self.acceptance[:num_speculative_tokens])

    @property
    def _start(self) -> Law:
        return GENERIC.for_engine(self.capture_size, None)


def read(document: Mapping[str, Any]) -> MeasuredProfile:
    """Read a profile document.

    Raises:
        ValueError: a field is missing or not what it should be; the message says which.
    """
    try:
        return _read(document)
    except KeyError as fault:
        raise ValueError(f"the profile has no field {fault}") from None
    except (TypeError, IndexError) as fault:
        raise ValueError(f"the profile is not of the expected form: {fault}") from None


def _read(document: Mapping[str, Any]) -> MeasuredProfile:
    rows, bare = list(document["rows"]), list(document.get("no_drafter", ()))
    captured = {int(row["capture_size"]) for row in (*rows, *bare)}
    if not rows or len(captured) != 1:
        raise ValueError("the profile needs rows, all of one capture_size")
    with_drafter, without = _points(rows, drafter=True), _points(bare, drafter=False)
    times_s = np.array([row_time_s(row) for row in (*rows, *bare)])
    if not (np.isfinite(times_s).all() and times_s.min() > 0):
        raise ValueError("the profile has a step time that is not positive")
    return MeasuredProfile(
        points=Points(
            *(
                np.concatenate([getattr(with_drafter, column), getattr(without, column)])
                for column in ("batch", "num_speculative_tokens", "context", "passes")
            )
        ),
        times_s=times_s,
        capture_size=captured.pop(),
        acceptance=tuple(float(share) for share in document.get("acceptance", ())),
        prefill_tokens=tuple(float(row["tokens"]) for row in document.get("prefill", ())),
        prefill_s=tuple(float(row["ttft_ms"]) / 1e3 for row in document.get("prefill", ())),
    )


def row_time_s(row: Mapping[str, Any]) -> float:
    """Seconds a step of a row: the median, or what throughput implies where the row is marked noisy."""
    return float(row["step_time_ms_from_throughput" if row["noisy"] else "step_time_ms_median"]) / 1e3


def _points(rows: Sequence[Mapping[str, Any]], *, drafter: bool) -> Points:
    return points_of(
        [float(row["batch"]) for row in rows],
        [float(row["speculative_tokens"]) for row in rows],
        [float(row["context"]) for row in rows],
        drafter=drafter,
    )
