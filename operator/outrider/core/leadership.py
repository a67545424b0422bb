"""Which of several operators is the active one, by a record that all of them see and one at a time can change.

Clocks of two machines are never compared. The holder acts for a while after it *began* the renewal that is in the
record; everybody else waits for longer than that after it *saw* the record change. So two never act at once as long as
no clock runs faster than another by the quotient of the two times, however late calls and answers are, and whether or
not a lost answer belonged to a write that was carried out. The terms, and this reasoning, are those of client-go
(k8s.io/client-go/tools/leaderelection/doc.go).

Times are seconds on the monotonic clock of the process that calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terms:
    """How long is waited for what, seconds; the defaults are those of Kubernetes' own controllers."""

    lease_s: float = 15.0
    """Others wait for so long after the last change of the record before they take the lease."""
    renew_within_s: float = 10.0
    """The holder acts for so long without having renewed."""
    retry_s: float = 2.0
    """Between two renewals, and between two looks of one who waits."""

    def __post_init__(self) -> None:
        if not 0.0 < self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError(f"a lease needs 0 < retry_s < renew_within_s < lease_s, and not {self}")


@dataclass(frozen=True, slots=True)
class Record:
    """The lease as it stands."""

    holder: str
    """Empty when the last holder has given it back."""
    version: str
    """Another one after each change, whatever was changed."""
    lease_s: float | None = None
    """What the holder asks others to wait; None when it does not say."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A record, and since when it is known to stand so."""

    record: Record
    since_s: float
    """When its version was first seen: after it was written, by however much the answer took."""


def see(before: Sight | None, record: Record | None, now_s: float) -> Sight | None:
    """What is known after a look whose answer is there by ``now_s``; ``record`` is None when there is none.

    A lease that somebody deleted still has the holder that it had: who it was does not know of it yet.
    """
    if record is None or (before is not None and before.record.version == record.version):
        return before
    return Sight(record, now_s)


def free_from_s(sight: Sight | None, me: str, terms: Terms) -> float:
    """From when on ``me`` may take the lease; minus infinity when nobody else holds it.

    A holder of the same name is what ran in this place before, and has ended.
    """
    if sight is None or sight.record.holder in ("", me):
        return -math.inf
    return sight.since_s + max(terms.lease_s, sight.record.lease_s or 0.0)


def acts_until_s(asked_s: float, terms: Terms) -> float:
    """Until when the holder may act after a renewal that it sent at ``asked_s`` and that was confirmed."""
    return asked_s + terms.renew_within_s
