"""What is known of acceptance, as JSON values of the memory document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.core.acceptance import AcceptanceState
from outrider.core.drift import Drift
from outrider.core.survival import Counts
from outrider.core.trend import SlowCounts


def to_document(state: AcceptanceState) -> dict[str, Any]:
    """All but the flag of the last update."""
    noticed, slow = state.drift, state.slow
    return {
        **_counts(state.counts),
        "drift": [round(value, 3) for value in (noticed.above, noticed.below, noticed.squares, noticed.windows)],
        "rejectedWindows": state.rejected_windows,
        "baseline": _counts(slow.baseline),
        "baselineSeconds": round(slow.baseline_s, 1),
        "recent": _counts(slow.recent),
        "declining": slow.declining,
    }


def from_document(document: Mapping[str, Any]) -> AcceptanceState:
    """The remembered state; what earlier versions did not write starts afresh.

    Raises:
        KeyError, TypeError, ValueError: the document was damaged.
    """
    counts = _read_counts(document)
    return AcceptanceState(
        counts.drafted,
        counts.accepted,
        Drift(*(max(0.0, float(value)) for value in document.get("drift", ()))),
        rejected_windows=int(document.get("rejectedWindows", 0)),
        slow=SlowCounts(
            _read_counts(document.get("baseline", _NONE)),
            float(document.get("baselineSeconds", 0.0)),
            _read_counts(document.get("recent", _NONE)),
            bool(document.get("declining", False)),
        ),
    )


_NONE: Mapping[str, Any] = {"drafted": (), "accepted": ()}


def _counts(counts: Counts) -> dict[str, list[float]]:
    return {
        "drafted": [round(count, 1) for count in counts.drafted],
        "accepted": [round(count, 1) for count in counts.accepted],
    }


def _read_counts(document: Mapping[str, Any]) -> Counts:
    drafted, accepted = (tuple(float(count) for count in document[name]) for name in ("drafted", "accepted"))
    if len(drafted) != len(accepted) or not all(0 <= a <= d for a, d in zip(accepted, drafted, strict=True)):
        raise ValueError("more tokens accepted than drafted")
    return Counts(drafted, accepted)
