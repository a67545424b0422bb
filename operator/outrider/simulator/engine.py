"""A speculating engine in virtual time: queue, batching, chunked prefill, KV blocks, drafts and their verification.

It follows vLLM 0.33: K is looked up by the number of all requests in the step, prefill chunks included; what a step
drafts is verified by the next one; the counters count what vLLM's count. The caller owns the clock: `submit` and
`advance` take the time, and it never goes back. Simplified: no prefix cache; the whole prompt must fit the cache before
a request is let in; requests whose tokens one step's budget could not carry wait instead of taking turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.schedule import Schedule
from outrider.simulator.batch import Active, DecodeBatch
from outrider.simulator.counters import CellKey, EngineCounters, histogram_bounds
from outrider.simulator.profile import Profile
from outrider.simulator.request import Listener, Request, RequestRecord
from outrider.simulator.settings import BLOCK_SIZE, EngineSettings
from outrider.simulator.step_times import StepTimes

STALL_S = 1.0  # a step over a second of the card's own time is a stall: decode steps take 7 to 60 ms


class RequestTooLong(ValueError):
    """Prompt and answer do not fit the model's length or the whole cache."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    active: Active
    tokens: int


@dataclass(frozen=True, slots=True)
class _Step:
    start_s: float
    end_s: float
    num_speculative_tokens: int
    """K drafted in this step; the requests verify what the step before drafted."""
    requests: int
    chunks: tuple[_Chunk, ...]


class SimulatedEngine:
    """One engine. Deterministic: the same settings, profile, seed and calls give the same tokens at the same times."""

    def __init__(self, settings: EngineSettings, profile: Profile, *, seed: int = 0, start_s: float = 0.0) -> None:
        self.settings = settings
        self.profile = profile
        self.now_s = start_s
        self.last_token_s = start_s
        self.last_progress_s = start_s
        """When a step last ended or, after idleness, the first request came."""
        self.hung = False
        ceiling = settings.max_speculative_tokens
        bounds = histogram_bounds(settings.max_model_len, settings.histogram_buckets)
        self.counters = EngineCounters(ceiling, bounds)
        self.on_finish: Callable[[RequestRecord], None] | None = None
        self._batch = DecodeBatch(settings.max_num_seqs, ceiling, profile.acceptance, seed)
        self._waiting: deque[Active] = deque()
        self._prefilling: list[Active] = []
        self._times = StepTimes(profile, settings)
        self._most_running = min(settings.max_num_seqs, settings.max_num_batched_tokens // (ceiling + 1))
        self._lookup: list[int] = []
        self._width = 0
        """Drafts that each decoding request carries into the next step."""
        self._step: _Step | None = None
        self.schedule = settings.start_schedule
        self.set_schedule(self.schedule)

    # What a caller may ask and do.

    @property
    def num_running(self) -> int:
        """Requests in prefill or decoding."""
        return len(self._batch) + len(self._prefilling)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return self._blocks_in_use() / self.settings.num_gpu_blocks

    @property
    def next_event_s(self) -> float | None:
        """When the running step ends; None while nothing runs. `submit` needs an `advance` after it to start a step."""
        return None if self._step is None or self.hung else self._step.end_s

    def set_schedule(self, schedule: Schedule) -> None:
        """Steps that start from now on look K up here."""
        self.schedule = schedule
        self._lookup = schedule.lookup(self.settings.max_num_seqs)

    def submit(self, request: Request, now_s: float, listener: Listener | None = None) -> None:
        """Put a request into the queue.

        Raises:
            RequestTooLong: it can never run here.
        """
        total = request.prompt_tokens + request.output_tokens
        if request.prompt_tokens < 1 or request.output_tokens < 1 or total > self.settings.max_model_len:
            raise RequestTooLong(
                f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens;"
                f" together they must be at least 1 each and at most {self.settings.max_model_len}"
            )
        if self._blocks_for(total + self.settings.max_speculative_tokens) > self.settings.num_gpu_blocks:
            raise RequestTooLong(f"{total} tokens do not fit {self.settings.num_gpu_blocks} KV blocks")
        self.advance(now_s)
        if not (self.num_running or self.num_waiting):
            self.last_progress_s = now_s
        self._waiting.append(Active(request, listener, request.prompt_tokens))

    def abort(self, request_id: str, now_s: float) -> None:
        """Take a request out, wherever it is; unknown ids are ignored, since it may just have finished."""
        self.advance(now_s)
        for index, active in enumerate(self._batch.requests):
            if active.request.id == request_id:
                self._finish(self._batch.remove([index])[0], "abort")
                return
        for group in (self._prefilling, self._waiting):
            for active in group:
                if active.request.id == request_id:
                    group.remove(active)
                    active.aborted = True
                    self._finish(active, "abort")
                    return

    def request_ids(self) -> list[str]:
        """Everything in the engine: decoding, in prefill, waiting."""
        return [active.request.id for active in (*self._batch.requests, *self._prefilling, *self._waiting)]

    def hang(self) -> None:
        """From now on no step ends: a kernel that never returns."""
        self.hung = True

    def advance(self, until_s: float) -> None:
        """Run every step that ends by ``until_s``; the clock then stands there."""
        while not self.hung:
            if self._step is None:
                self._step = self._start_step()
                if self._step is None:
                    break
            if self._step.end_s > until_s:
                break
            step, self._step = self._step, None
            self._end_step(step)
        self.now_s = max(self.now_s, until_s)

    # Scheduling.

    def _start_step(self) -> _Step | None:
        if not (len(self._batch) or self._prefilling or self._waiting):
            return None
        admit = not self._make_room()
        decoding = len(self._batch)
        chunks = self._prefill_chunks(self.settings.max_num_batched_tokens - decoding * (self._width + 1), admit)
        requests = decoding + len(chunks)
        k = self._lookup[requests]
        prefill_tokens = sum(chunk.tokens for chunk in chunks)
        seconds = self._times.step_s(decoding, self._width, k, prefill_tokens, self._batch.context_sum)
        return _Step(self.now_s, self.now_s + seconds, k, requests, chunks)

    def _make_room(self) -> bool:
        """Preempt the youngest requests until every decoding one has blocks for this step; whether any had to go."""
        preempted = False
        while self.num_running > 1 and self._blocks_in_use(bound=True) > self.settings.num_gpu_blocks:
            if self._blocks_in_use() <= self.settings.num_gpu_blocks:
                break
            self._preempt(self._prefilling.pop() if self._prefilling else self._batch.remove([len(self._batch) - 1])[0])
            preempted = True
        return preempted

    def _preempt(self, active: Active) -> None:
        """Back to the head of the queue; its cache is lost and must be computed again."""
        active.to_prefill = active.request.prompt_tokens + active.generated
        active.prefilled = 0
        active.reserved_blocks = 0
        active.num_preemptions += 1
        active.last_token_s = self.now_s
        self.counters.num_preemptions += 1
        self._waiting.appendleft(active)

    def _prefill_chunks(self, budget: int, admit: bool) -> tuple[_Chunk, ...]:
        """Share the tokens that decoding leaves: first to prompts already begun, then to the head of the queue."""
        chunks = []
        for active in self._prefilling:
            if budget > 0:
                chunks.append(_Chunk(active, min(active.to_prefill - active.prefilled, budget)))
                budget -= chunks[-1].tokens
        if not (admit and self._waiting):
            return tuple(chunks)
        free = self.settings.num_gpu_blocks - self._blocks_in_use()
        while self._waiting and budget > 0 and self.num_running < self._most_running:
            active = self._waiting[0]
            active.reserved_blocks = self._blocks_for(active.to_prefill)
            free -= active.reserved_blocks
            if free < 0:
                active.reserved_blocks = 0
                break
            self._prefilling.append(self._waiting.popleft())
            if active.scheduled_s is None:
                active.scheduled_s = self.now_s
            chunks.append(_Chunk(active, min(active.to_prefill, budget)))
            budget -= chunks[-1].tokens
        return tuple(chunks)

    def _blocks_for(self, tokens: int) -> int:
        return -(-(tokens + 1 + self.settings.max_speculative_tokens) // BLOCK_SIZE)

    def _blocks_in_use(self, *, bound: bool = False) -> int:
        """KV blocks held; with ``bound`` a number that is never below, at no cost."""
        slots = 1 + self._width + self.settings.max_speculative_tokens
        reserved = sum(active.reserved_blocks for active in self._prefilling)
        if bound:
            size = len(self._batch)
            return reserved + (self._batch.context_sum + size * slots) // BLOCK_SIZE + size
        return reserved + self._batch.blocks(slots)

    # What a step gives.

    def _end_step(self, step: _Step) -> None:
        self.now_s = self.last_progress_s = step.end_s
        seconds = step.end_s - step.start_s
        before = self.counters.generation_tokens
        if len(self._batch):
            self._end_decode(seconds)
        prompt_tokens = sum(self._end_chunk(chunk) for chunk in step.chunks)
        settled = self._width == step.num_speculative_tokens
        self._width = step.num_speculative_tokens
        bucket = 1 << (step.requests - 1).bit_length()
        key = CellKey(bucket, step.num_speculative_tokens, bool(step.chunks))
        self.counters.observe_step(key, seconds, step.requests, settled=settled)
        generated = self.counters.generation_tokens - before
        self.counters.histograms["vllm:iteration_tokens_total"].observe(prompt_tokens + generated)
        if seconds > STALL_S * self.profile.dilation:
            self.counters.stalls += 1
            self.counters.stall_seconds += seconds

    def _end_decode(self, seconds: float) -> None:
        counters, size = self.counters, len(self._batch)
        verified = self._batch.verify(self._width)
        if self._width:
            counters.observe_drafts(size, self._width, verified.accepted_per_pos)
        counters.generation_tokens += verified.num_emitted
        counters.bonus_tokens += size
        counters.discarded_tokens += verified.num_discarded
        # One sample a request and step, not a token: every decoding request had output when this step began.
        counters.histograms["vllm:inter_token_latency_seconds"].observe(seconds, size)
        self.last_token_s = self.now_s
        if self._batch.num_listeners:
            for active, tokens in zip(self._batch.requests, verified.emitted.tolist(), strict=True):
                if active.listener is not None and active.listener.every_step:
                    active.listener.emitted(tokens, self.now_s)
        if verified.done:
            for active in self._batch.remove(verified.done):
                self._finish(active, active.request.finish_reason)

    def _end_chunk(self, chunk: _Chunk) -> int:
        """Prompt tokens counted by this step: all of a prompt when its last chunk ends, as in vLLM."""
        active, counters, prompt_tokens = chunk.active, self.counters, 0
        active.prefilled += chunk.tokens
        if active.aborted or active.prefilled < active.to_prefill:
            return 0
        self._prefilling.remove(active)
        if active.first_token_s is None:
            active.first_token_s = self.now_s
            prompt_tokens = active.request.prompt_tokens
            counters.prompt_tokens += prompt_tokens
            ttft_s = self.now_s - active.request.arrival_s
            counters.histograms["vllm:time_to_first_token_seconds"].observe(ttft_s)
        else:
            counters.histograms["vllm:inter_token_latency_seconds"].observe(self.now_s - active.last_token_s)
        active.generated += 1
        counters.generation_tokens += 1
        counters.bonus_tokens += 1
        self.last_token_s = self.now_s
        if active.listener is not None and active.listener.every_step:
            active.listener.emitted(1, self.now_s)
        if active.generated < active.request.output_tokens:
            self._batch.add(active)
        else:
            self._finish(active, active.request.finish_reason)
        return prompt_tokens

    def _finish(self, active: Active, reason: str) -> None:
        record = active.record(self.now_s, reason)
        self.counters.observe_request(record)
        if active.listener is not None:
            active.listener.finished(record)
        if self.on_finish is not None:
            self.on_finish(record)
