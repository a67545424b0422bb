"""The decoding requests of an engine, as arrays: one verification costs a few numpy calls at any batch size.

Many steps in a row cost little more than one: `foresee` draws them all, `take` lets the first of them happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.request import Listener, Request, RequestRecord, extended
from outrider.simulator.settings import BLOCK_SIZE

Ints = NDArray[np.int64]
DRAWS = 4096  # random numbers drawn at a time: one call to the generator for many steps


@dataclass(slots=True, eq=False)
class Active:
    """A request inside the engine, waiting, in prefill or decoding."""

    request: Request
    listener: Listener | None
    to_prefill: int
    """Tokens without a KV entry that must be computed before (more) output: the prompt, and after a preemption also
    what was generated."""
    prefilled: int = 0
    generated: int = 0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    num_preemptions: int = 0
    reserved_blocks: int = 0
    aborted: bool = False

    @property
    def watched(self) -> bool:
        """Whether somebody wants to hear of every step."""
        return self.listener is not None and self.listener.every_step

    def record(self, now_s: float, reason: str) -> RequestRecord:
        """The request as it ends now; what it never reached counts as now."""
        return RequestRecord(
            request=self.request,
            scheduled_s=now_s if self.scheduled_s is None else self.scheduled_s,
            first_token_s=now_s if self.first_token_s is None else self.first_token_s,
            finished_s=now_s,
            output_tokens=self.generated,
            finish_reason=reason,
            num_preemptions=self.num_preemptions,
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """What one verification step gave."""

    emitted: Ints
    """Tokens each request sends out, cut at the end of its answer."""
    num_emitted: int
    accepted_per_pos: Ints
    """Requests whose first position + 1 drafts were accepted, before the cut."""
    done: Sequence[int]
    """Indices of requests whose answer is complete, ascending."""
    num_discarded: int
    """Tokens cut off."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """What the next steps will give while the same requests decode with the same number of drafts."""

    width: int
    hits: NDArray[np.bool_]
    """Accepted drafts by step, position and request."""
    emitted: Ints
    """Tokens by step and request, not cut at the end of an answer."""
    num_emitted: Ints
    """By step, all requests together."""

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.num_emitted)

    def after(self, steps: int) -> Foresight:
        """What is left when so many of the steps were taken."""
        return Foresight(self.width, self.hits[steps:], self.emitted[steps:], self.num_emitted[steps:])

    def until(self, steps: int) -> Foresight:
        """The first so many steps alone."""
        return Foresight(self.width, self.hits[:steps], self.emitted[:steps], self.num_emitted[:steps])


class DecodeBatch:
    """Requests in the order they began to decode, the youngest last."""

    def __init__(self, capacity: int, max_speculative_tokens: int, profile_curve: Sequence[float], seed: int) -> None:
        self.requests: list[Active] = []
        self.context_sum = 0
        """Cached tokens of all requests together."""
        self.num_listeners = 0
        """Of those that want to hear of every step."""
        self._ceiling = max_speculative_tokens
        self._default_curve = extended(profile_curve, max_speculative_tokens)
        self._remaining = np.zeros(capacity, dtype=np.int64)
        self._context = np.zeros(capacity, dtype=np.int64)
        self._curves = np.zeros((max_speculative_tokens, capacity))
        self._until_end = 0
        """Tokens that no request can need more of to end; at 0 or below the ends must be looked for."""
        self._rng = np.random.default_rng(seed)
        self._draws = self._rng.random(DRAWS)
        self._drawn = 0

    def __len__(self) -> int:
        """The number of decoding requests."""
        return len(self.requests)

    def add(self, active: Active) -> None:
        """A request whose prefill is complete and which has tokens left to generate."""
        at, request = len(self.requests), active.request
        self._remaining[at] = request.output_tokens - active.generated
        self._context[at] = request.prompt_tokens + active.generated
        curve = request.acceptance
        self._curves[:, at] = self._default_curve if curve is None else extended(curve, self._ceiling)
        self.requests.append(active)
        self.context_sum += int(self._context[at])
        self.num_listeners += active.watched
        self._until_end = min(self._until_end, int(self._remaining[at])) if at else int(self._remaining[at])

    def remove(self, indices: Sequence[int]) -> list[Active]:
        """Take requests out; their ``generated`` is brought up to date."""
        gone = [self.requests[index] for index in indices]
        for index, active in zip(indices, gone, strict=True):
            active.generated = active.request.output_tokens - int(self._remaining[index])
            self.num_listeners -= active.watched
            self.context_sum -= int(self._context[index])
        for index in sorted(indices, reverse=True):
            del self.requests[index]
            after = len(self.requests)
            for array in (self._remaining, self._context):
                array[index:after] = array[index + 1 : after + 1]
            self._curves[:, index:after] = self._curves[:, index + 1 : after + 1]
        after = len(self.requests)
        self._until_end = int(self._remaining[:after].min()) if after else 0
        return gone

    def verify(self, width: int) -> Verified:
        """Every request verifies ``width`` drafts and emits the accepted ones and one token of the target's own.

        One uniform number a request decides: position j is accepted while it lies under the curve, so that the share
        of drafts with at least j accepted is the curve itself.
        """
        size = len(self.requests)
        if width:
            hits = self._curves[:width, :size] > self._uniform(size)
            emitted = hits.sum(axis=0)
            emitted += 1
            accepted_per_pos = hits.sum(axis=1)
            num_emitted = size + int(accepted_per_pos.sum())
        else:
            emitted, accepted_per_pos, num_emitted = np.ones(size, dtype=np.int64), np.zeros(0, dtype=np.int64), size
        remaining = self._remaining[:size]
        remaining -= emitted
        self._context[:size] += emitted
        self.context_sum += num_emitted
        self._until_end -= width + 1
        done: list[int] = []
        discarded = 0
        if self._until_end <= 0 and size:
            self._until_end = int(remaining.min())
            if self._until_end <= 0:
                done, discarded = self._cut(emitted)
        return Verified(emitted, num_emitted - discarded, accepted_per_pos, done, discarded)

    def foresee(self, width: int, steps: int) -> Foresight:
        """At most so many next steps, up to and with the first that ends an answer; nothing changes by looking.

        They are fewer where the drawn numbers end: the steps then taken are those that `verify` would give.
        """
        size = len(self.requests)
        steps = min(steps, max(1, self._until_end))  # by then an answer ends, with one token a step or more
        if width:
            steps = min(steps, max(1, self._left_for(size) // size))
            uniform = self._draws[self._drawn : self._drawn + steps * size].reshape(steps, 1, size)
            hits = uniform < self._curves[:width, :size]
            emitted = hits.sum(axis=1)
            emitted += 1
        else:
            hits, emitted = np.zeros((steps, 0, size), dtype=bool), np.ones((steps, size), dtype=np.int64)
        if steps * (width + 1) >= self._until_end:
            ended = (emitted.cumsum(axis=0) >= self._remaining[:size]).any(axis=1)
            last = int(ended.argmax())
            if ended[last]:
                hits, emitted = hits[: last + 1], emitted[: last + 1]
        return Foresight(width, hits, emitted, emitted.sum(axis=1))

    def take(self, foreseen: Foresight, steps: int) -> Verified:
        """Let the first ``steps`` foreseen steps happen; ``emitted`` and ``num_emitted`` are sums over them."""
        size = len(self.requests)
        emitted = foreseen.emitted[:steps].sum(axis=0)
        accepted_per_pos = foreseen.hits[:steps].sum(axis=(0, 2))
        if foreseen.width:
            self._drawn += steps * size
        remaining = self._remaining[:size]
        remaining -= emitted
        self._context[:size] += emitted
        num_emitted = steps * size + int(accepted_per_pos.sum())
        self.context_sum += num_emitted
        self._until_end = int(remaining.min())
        done: list[int] = []
        discarded = 0
        if self._until_end <= 0:
            done, discarded = self._cut(emitted)
        return Verified(emitted, num_emitted - discarded, accepted_per_pos, done, discarded)

    def blocks(self, extra: int) -> int:
        """KV blocks in use when every request needs ``extra`` slots beyond its context."""
        size = len(self.requests)
        return int(((self._context[:size] + (extra + BLOCK_SIZE - 1)) // BLOCK_SIZE).sum())

    def _cut(self, emitted: Ints) -> tuple[list[int], int]:
        """Take back what goes past the end of an answer; who is done, and how many tokens it were."""
        done, discarded = [], 0
        for index, left in enumerate(self._remaining[: len(self.requests)].tolist()):
            if left <= 0:
                done.append(index)
                discarded -= left
                emitted[index] += left
                self._context[index] += left
                self._remaining[index] = 0
        self.context_sum -= discarded
        return done, discarded

    def _uniform(self, count: int) -> NDArray[np.float64]:
        self._left_for(count)
        start, self._drawn = self._drawn, self._drawn + count
        return self._draws[start : self._drawn]

    def _left_for(self, count: int) -> int:
        """Numbers drawn and not used, at least ``count``; new ones are drawn when too few are left."""
        if self._drawn + count > len(self._draws):
            self._draws = self._rng.random(max(DRAWS, count))
            self._drawn = 0
        return len(self._draws) - self._drawn
