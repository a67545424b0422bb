"""The rules of the admin port: who may change a schedule, and for how long.

    generation      schedule        answer
    ------------------------------------------------------------------
    newer           valid           200, taken over
    the present     the same        200, lease renewed
    the present     another         409
    older           any valid       409
    any             not valid       422, every fault named
    (K is fixed for this engine)    503, with the reason

Real and simulated engines run this same code; the time is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.core.schedule import InvalidSchedule, Schedule, parse_rows

DEFAULT_LEASE_S = 3600.0
"""As the operator's own documents have it."""
LONGEST_LEASE_S = 7 * 86400.0
"""The operator's are a day at most; an engine must not keep for ever what nobody renews."""
LARGEST_GENERATION = 2**63 - 1
"""Of a Kubernetes object."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP status and a JSON body."""

    status: int
    body: dict[str, Any]


class ScheduleKeeper:
    """Which schedule one engine runs, under which generation and until when."""

    def __init__(
        self,
        initial: Schedule,
        *,
        ceiling: int,
        values: Sequence[int],
        max_num_seqs: int,
        apply: Callable[[Schedule], None],
        not_controllable_because: str = "",
    ) -> None:
        """``ceiling`` is the engine's largest K, ``values`` are the K with CUDA graphs, ``apply`` puts a schedule into
        the engine; the initial one must be there already."""
        self.generation = -1
        """Of the last schedule taken over; -1 before the first. A lease that ran out keeps it."""
        self.delivered: Schedule | None = None
        self.lease_ends_s: float | None = None
        """On the caller's clock; None while the initial schedule runs."""
        self.schedule = initial
        """What the engine runs now."""
        self.not_controllable_because = not_controllable_because
        self._initial, self._apply = initial, apply
        self._ceiling, self._values, self._max_num_seqs = ceiling, tuple(values), max_num_seqs

    @property
    def initial(self) -> bool:
        """Whether the engine runs its initial schedule: none was delivered yet, or the lease ran out."""
        return self.lease_ends_s is None

    def put(self, document: object, now_s: float) -> Reply:
        """``PUT /schedule``, or a mounted document that changed."""
        self.expire(now_s)
        if self.not_controllable_because:
            return not_controllable(self.not_controllable_because)
        generation, schedule, lease_s, faults = self._parse(document)
        if schedule is None or faults:
            return Reply(422, {"error": "the document is not a schedule for this engine", "faults": faults})
        if generation < self.generation:
            error = f"generation {generation} is older than {self.generation}"
            return Reply(409, {"error": error, "generation": self.generation})
        if generation == self.generation and schedule != self.delivered:
            error = f"generation {generation} was delivered with another schedule"
            return Reply(409, {"error": error, "generation": self.generation})
        self._apply(schedule)
        self.schedule = self.delivered = schedule
        self.generation, self.lease_ends_s = generation, now_s + lease_s
        return Reply(200, self.effective())

    def expire(self, now_s: float) -> None:
        """Return to the initial schedule when the lease has run out."""
        if self.lease_ends_s is not None and now_s >= self.lease_ends_s:
            self.lease_ends_s = None
            self.schedule = self._initial
            self._apply(self._initial)

    def lease_left_s(self, now_s: float) -> float | None:
        """Seconds until the initial schedule returns; None while it runs."""
        return None if self.lease_ends_s is None else max(0.0, self.lease_ends_s - now_s)

    def effective(self) -> dict[str, Any]:
        """Generation, rows and K by batch size, as answers give them."""
        return {
            "generation": self.generation,
            "schedule": self.schedule.as_lists(),
            "effective": self.schedule.lookup(self._max_num_seqs)[1:],
        }

    def _parse(self, document: object) -> tuple[int, Schedule | None, float, list[str]]:
        if not isinstance(document, Mapping):
            return -1, None, 0.0, ["the body is not a JSON object with generation, schedule and leaseSeconds"]
        faults = []
        generation, lease_s = document.get("generation"), document.get("leaseSeconds", DEFAULT_LEASE_S)
        if type(generation) is not int or not 0 <= generation <= LARGEST_GENERATION:
            faults.append(f"generation is {generation!r}; it must be an integer of 0 or more, 64 bits long")
            generation = -1
        if type(lease_s) not in (int, float) or not 0 < lease_s <= LONGEST_LEASE_S:
            faults.append(f"leaseSeconds is {lease_s!r}; it must be a number above 0, at most {LONGEST_LEASE_S:.0f}")
        schedule = None
        try:
            schedule = parse_rows(
                document.get("schedule"),
                ceiling=self._ceiling,
                max_batch_size=self._max_num_seqs,
                allowed=self._values,
            )
        except InvalidSchedule as error:
            faults += error.faults
        return generation, schedule, lease_s, faults


def not_controllable(reason: str) -> Reply:
    """The answer of an engine whose K nobody can change now."""
    return Reply(503, {"error": "not controllable", "reason": reason})


def parse_json(text: str | bytes) -> object:
    """The value of a JSON text, None if it is none: `ScheduleKeeper.put` then names the fault."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
