"""A speculating engine in virtual time: queue, batching, chunked prefill, KV blocks, drafts and their verification.

It follows vLLM 0.33: K is looked up by the number of all requests in the step, prefill chunks included; what a step
drafts is verified by the next one; the counters count what vLLM's count. The caller owns the clock: `submit` and
`advance` take the time, and it never goes back. Simplified: no prefix cache; the whole prompt must fit the cache before
a request is let in; requests whose tokens one step's budget could not carry wait instead of taking turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.core.schedule import Schedule
from outrider.simulator.batch import Active, DecodeBatch, Verified
from outrider.simulator.counters import STALL_S, CellKey, EngineCounters, histogram_bounds
from outrider.simulator.noise import QUIET, Noise, StepNoise
from outrider.simulator.profile import Profile
from outrider.simulator.request import Listener, Request, RequestRecord
from outrider.simulator.scheduling import Chunk, Scheduler
from outrider.simulator.settings import EngineSettings
from outrider.simulator.step_times import Slowdown, StepTimes
from outrider.simulator.stretch import Stretch

LONGEST_STRETCH = 32  # steps: most stretches are cut by an arrival or an end before


class RequestTooLong(ValueError):
    """Prompt and answer do not fit the model's length or the whole cache."""


@dataclass(frozen=True, slots=True)
class _Step:
    start_s: float
    end_s: float
    num_speculative_tokens: int
    """K drafted in this step; the requests verify what the step before drafted."""
    requests: int
    chunks: tuple[Chunk, ...]


class SimulatedEngine:
    """One engine. Deterministic: the same settings, profile, seed and calls give the same tokens at the same times."""

    def __init__(
        self, settings: EngineSettings, profile: Profile, *, seed: int = 0, start_s: float = 0.0, noise: Noise = QUIET
    ) -> None:
        self.settings = settings
        self.profile = profile
        self.now_s = start_s
        self.hung = False
        self.on_finish: Callable[[RequestRecord], None] | None = None
        self._last_token_s = self._last_progress_s = start_s
        ceiling = settings.max_speculative_tokens
        bounds = histogram_bounds(settings.max_model_len, settings.histogram_buckets)
        self._counters = EngineCounters(ceiling, bounds, STALL_S * profile.dilation)
        self._batch = DecodeBatch(settings.max_num_seqs, ceiling, profile.acceptance, seed)
        self._scheduler = Scheduler(settings, self._batch)
        self._times = StepTimes(profile, settings, None if noise == QUIET else StepNoise(noise, seed))
        self._width = 0
        """Drafts that each decoding request carries into the next step."""
        self._step: _Step | None = None
        self._stretch: Stretch | None = None
        """Either a step runs, or a stretch, or nothing."""
        self.schedule = settings.start_schedule
        self._lookup = self.schedule.lookup(settings.max_num_seqs)

    # What a caller may ask and do.

    @property
    def num_running(self) -> int:
        """Requests in prefill or decoding."""
        return self._scheduler.num_running

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._scheduler.waiting)

    @property
    def counters(self) -> EngineCounters:
        """What was counted up to now; ask again after the clock has moved."""
        self.settle()
        self._counters.num_preemptions = self._scheduler.num_preemptions
        return self._counters

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        self.settle()
        return self._scheduler.blocks_in_use(self._width) / self.settings.num_gpu_blocks

    @property
    def last_token_s(self) -> float:
        """When a token was last sent out; at first the start."""
        self.settle()
        return self._last_token_s

    @property
    def last_progress_s(self) -> float:
        """When a step last ended or, after idleness, the first request came."""
        self.settle()
        return self._last_progress_s

    @property
    def next_event_s(self) -> float | None:
        """When the running step ends; None while nothing runs. `submit` needs an `advance` after it to start a step."""
        if self.hung:
            return None
        if self._stretch is not None:
            return self._stretch.moments_s[self._stretch.ended(self.now_s) + 1]
        return None if self._step is None else self._step.end_s

    def set_schedule(self, schedule: Schedule) -> None:
        """Steps that start from now on look K up here."""
        if schedule != self.schedule:
            self._interrupt()
            self.schedule = schedule
            self._lookup = schedule.lookup(self.settings.max_num_seqs)

    def slow_down(self, slowdown: Slowdown) -> None:
        """Steps that start from now on take so much longer."""
        self._interrupt()
        self._times.slow_down(slowdown)

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
        scheduler = self._scheduler
        if scheduler.blocks_for(total + self.settings.max_speculative_tokens) > self.settings.num_gpu_blocks:
            raise RequestTooLong(f"{total} tokens do not fit {self.settings.num_gpu_blocks} KV blocks")
        self.advance(now_s)
        if not scheduler.waiting:  # behind others that wait, nothing changes for the steps that run
            self._interrupt()
            if not scheduler.num_running:
                self._last_progress_s = now_s
        scheduler.came(Active(request, listener, request.prompt_tokens), busy=bool(self._step or self._stretch))

    def abort(self, request_id: str, now_s: float) -> None:
        """Take a request out, wherever it is; unknown ids are ignored, since it may just have finished."""
        self.advance(now_s)
        self._leave_stretch()
        for index, active in enumerate(self._batch.requests):
            if active.request.id == request_id:
                self._finish(self._batch.remove([index])[0], "abort", self.now_s)
                return
        for group in (self._scheduler.prefilling, self._scheduler.waiting):
            for active in group:
                if active.request.id == request_id:
                    group.remove(active)
                    active.aborted = True
                    self._finish(active, "abort", self.now_s)
                    return

    def request_ids(self) -> list[str]:
        """Everything in the engine: decoding, in prefill, waiting."""
        groups = (self._batch.requests, self._scheduler.prefilling, self._scheduler.waiting)
        return [active.request.id for group in groups for active in group]

    def hang(self) -> None:
        """From now on no step ends: a kernel that never returns."""
        self._leave_stretch()
        self.hung = True

    def advance(self, until_s: float) -> None:
        """Run every step that ends by ``until_s``; the clock then stands there."""
        while not self.hung:
            if self._stretch is None and self._step is None:
                self._start()
            if self._stretch is not None:
                end_s = self._stretch.moments_s[-1]
                if end_s > until_s:
                    break
                self.now_s = end_s
                self.settle()
            elif self._step is not None:
                if self._step.end_s > until_s:
                    break
                step, self._step = self._step, None
                self._end_step(step)
            else:
                break
        self.now_s = max(self.now_s, until_s)

    def settle(self) -> None:
        """Count the steps of the present stretch that have ended; whoever reads what steps change calls it first."""
        stretch = self._stretch
        if stretch is None:
            return
        steps = stretch.ended(self.now_s)
        if steps:
            self._stretch = stretch.after(steps) if steps < len(stretch) else None
            self._end_steps(stretch, steps)

    # Steps.

    def _start(self) -> None:
        """Begin the next step, or a stretch of them where nothing but decoding can happen."""
        batch, scheduler = self._batch, self._scheduler
        if not (batch.requests or scheduler.prefilling or scheduler.waiting):
            return
        preempted = scheduler.make_room(self._width, self.now_s)
        chunks = scheduler.prefill_chunks(self._width, self.now_s, admit=not preempted)
        requests = len(batch) + len(chunks)
        k = self._lookup[requests]
        quiet = not (preempted or scheduler.prefilling or scheduler.late or batch.num_listeners)
        if quiet and k == self._width:
            steps = min(LONGEST_STRETCH, scheduler.steps_with_room(k))
            if steps > 1:
                foreseen = batch.foresee(k, steps)
                times_s = self._times.stretch_s(self.now_s, requests, k, batch.context_sum, foreseen.num_emitted)
                self._stretch = Stretch.starting(self.now_s, times_s, k, foreseen)
                return
        prefill_tokens = sum(chunk.tokens for chunk in chunks)
        seconds = self._times.step_s(self.now_s, len(batch), self._width, k, prefill_tokens, batch.context_sum)
        self._step = _Step(self.now_s, self.now_s + seconds, k, requests, chunks)

    def _interrupt(self) -> None:
        """Something changes for the steps that start from now on: the stretch ends with the step that runs."""
        if self._stretch is not None:
            self._stretch = self._stretch.until(self._stretch.ended(self.now_s) + 1)

    def _leave_stretch(self) -> None:
        """Only the running step remains, and will be drawn anew: its requests are about to change."""
        self.settle()
        if self._stretch is not None:
            stretch, self._stretch = self._stretch, None
            start_s, end_s = stretch.moments_s[:2]
            self._step = _Step(start_s, end_s, stretch.num_speculative_tokens, len(self._batch), ())

    # What steps give.

    def _end_steps(self, stretch: Stretch, steps: int) -> None:
        """The first ``steps`` of a stretch are over."""
        size, width = len(self._batch), stretch.num_speculative_tokens
        seconds, moment_s = stretch.seconds(steps), stretch.moments_s[steps]
        verified = self._batch.take(stretch.foreseen, steps)
        self._counters.observe_decoding(verified, width, size, seconds)
        generated = stretch.foreseen.num_emitted[:steps].tolist()
        generated[-1] -= verified.num_discarded
        self._counters.iteration_tokens.observe_all(generated)
        self._counters.observe_steps(CellKey.of(size, width, mixed=False), seconds, size)
        self._last_token_s = self._last_progress_s = moment_s
        self._finish_all(verified, moment_s)

    def _end_step(self, step: _Step) -> None:
        self.now_s = self._last_progress_s = step.end_s
        seconds = [step.end_s - step.start_s]
        before = self._counters.generation_tokens
        if len(self._batch):
            self._end_decode(seconds)
        prompt_tokens = 0
        for chunk in step.chunks:
            prompt_tokens += self._end_chunk(chunk)
        key = CellKey.of(step.requests, step.num_speculative_tokens, mixed=bool(step.chunks))
        settled = self._width == step.num_speculative_tokens
        self._counters.observe_steps(key, seconds, step.requests, settled=settled)
        self._width = step.num_speculative_tokens
        self._counters.iteration_tokens.observe(prompt_tokens + self._counters.generation_tokens - before)

    def _end_decode(self, seconds: Sequence[float]) -> None:
        size = len(self._batch)
        verified = self._batch.verify(self._width)
        self._counters.observe_decoding(verified, self._width, size, seconds)
        self._last_token_s = self.now_s
        if self._batch.num_listeners:
            for active, tokens in zip(self._batch.requests, verified.emitted.tolist(), strict=True):
                if active.listener is not None and active.listener.every_step:
                    active.listener.emitted(tokens, self.now_s)
        self._finish_all(verified, self.now_s)

    def _end_chunk(self, chunk: Chunk) -> int:
        """Prompt tokens counted by this step: all of a prompt when its last chunk ends, as in vLLM."""
        active, counters, prompt_tokens = chunk.active, self._counters, 0
        active.prefilled += chunk.tokens
        if active.aborted or active.prefilled < active.to_prefill:
            return 0
        self._scheduler.prefilling.remove(active)
        if active.first_token_s is None:
            active.first_token_s = self.now_s
            prompt_tokens = active.request.prompt_tokens
            counters.prompt_tokens += prompt_tokens
            ttft_s = self.now_s - active.request.arrival_s
            counters.time_to_first_token.observe(ttft_s)
        else:
            counters.inter_token_latency.observe(self.now_s - active.last_token_s)
        active.generated += 1
        counters.generation_tokens += 1
        counters.bonus_tokens += 1
        self._last_token_s = self.now_s
        if active.listener is not None and active.listener.every_step:
            active.listener.emitted(1, self.now_s)
        if active.generated < active.request.output_tokens:
            self._batch.add(active)
        else:
            self._finish(active, active.request.finish_reason, self.now_s)
        return prompt_tokens

    def _finish_all(self, verified: Verified, now_s: float) -> None:
        if verified.done:
            for active in self._batch.remove(verified.done):
                self._finish(active, active.request.finish_reason, now_s)

    def _finish(self, active: Active, reason: str, now_s: float) -> None:
        record = active.record(now_s, reason)
        self._counters.observe_request(record)
        if active.listener is not None:
            active.listener.finished(record)
        if self.on_finish is not None:
            self.on_finish(record)
