"""Requests that keep an engine busy while a test does something else to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tests.engine.client import EngineUnderTest, wait_until


@dataclass(slots=True)
class Load:
    """Streams, each asking for its prompt's answer again and again until the block ends.

    The block waits for the answers that are under way; ``answers`` are those that came whole, by stream.
    """

    engine: EngineUnderTest
    prompts: Sequence[Sequence[int]]
    max_tokens: int
    answers: list[list[list[int]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        """Start, and return once all streams run."""
        self.answers = [[] for _ in self.prompts]
        for number in range(len(self.prompts)):
            thread = threading.Thread(target=self._ask, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        wait_until(self._all_run, 30, "all streams run")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the last answers come."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _all_run(self) -> bool:
        return self.engine.metrics().sum("vllm:num_requests_running") == len(self.prompts) or bool(self.faults)

    def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            try:
                answer = self.engine.generate(self.prompts[number], self.max_tokens, stream=True)
            except (OSError, ValueError) as error:
                self.faults.append(f"stream {number}: {type(error).__name__}: {error}")
                return
            if (answer.status, answer.finish_reason) != (200, "length"):
                self.faults.append(f"stream {number}: status {answer.status}, {answer.finish_reason}")
                return
            self.answers[number].append(answer.token_ids)
