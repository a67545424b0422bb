"""As much of vLLM as the plugin touches, small enough to see what it does to it.

The fixture ``vllm`` in `conftest` puts its modules into ``sys.modules``. Each test has classes of its own, so nothing
that it installs outlives it.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

MAX_NUM_SEQS = 4
CEILING = 3
START_TABLE = (0, 1, 3, 3)

SCHEDULER = "vllm.v1.core.sched.scheduler"
CORE = "vllm.v1.engine.core"
CORE_CLIENT = "vllm.v1.engine.core_client"
TABLES = "vllm.v1.spec_decode.dynamic.utils"
LOGGERS = "vllm.v1.metrics.loggers"
SAMPLING = "vllm.sampling_params"
WORKER = "vllm.v1.worker.worker_base"
SPECULATOR = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator"
GRAPHS = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils"


@dataclass(eq=False)
class Output:
    """vLLM's SchedulerOutput."""

    num_scheduled_tokens: dict[str, int]
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[str] = field(default_factory=list)
    num_output_tokens: list[int] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())

    @property
    def scheduled_cached_reqs(self) -> Any:
        return SimpleNamespace(num_output_tokens=self.num_output_tokens, resumed_req_ids=self.resumed_req_ids)


def decode(requests: int, k: int = CEILING) -> Output:
    """A step in which each of these requests verifies its K drafts."""
    names = [f"r{number}" for number in range(requests)]
    return Output(dict.fromkeys(names, k + 1), k, num_output_tokens=[9] * requests)


def config(table: bool = True, speculates: bool = True, data_parallel_size: int = 1) -> Any:
    """vLLM's configuration of an engine with the V2 runner."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=CEILING) if speculates else None,
        parallel_config=SimpleNamespace(data_parallel_size=data_parallel_size),
        compilation_config=SimpleNamespace(
            cudagraph_capture_sizes=[4, 8, 16], cudagraph_mode=SimpleNamespace(name="FULL_AND_PIECEWISE")
        ),
        attention_config=SimpleNamespace(backend=SimpleNamespace(name="FLASH_ATTN")),
        use_v2_model_runner=True,
        has_table=table,
    )


def make_scheduler() -> type:
    class Scheduler:
        """Schedules what a test tells it to."""

        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config
            self.scheduler_config = SimpleNamespace(max_num_seqs=MAX_NUM_SEQS)
            self.num_spec_tokens = 0 if vllm_config.speculative_config is None else CEILING
            self.dynamic_sd_lookup = [0, *START_TABLE] if vllm_config.has_table else None
            self.next: Output | None = None
            self.unfinished = True

        def schedule(self, throttle: bool = False) -> Output | None:
            return self.next

        def update_from_output(self, output: Output, answers: dict[int, list[str]]) -> dict[int, Any]:
            return {client: SimpleNamespace(outputs=outputs) for client, outputs in answers.items()}

        def has_unfinished_requests(self) -> bool:
            return self.unfinished

    return Scheduler


def make_worker() -> type:
    class WorkerWrapperBase:
        def __init__(self, v2: bool = True) -> None:
            self.vllm_config = SimpleNamespace(use_v2_model_runner=v2)

        def init_device(self) -> str:
            return "initialised"

    return WorkerWrapperBase


class Mode(enum.Enum):
    """vLLM's CUDAGraphMode."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


@dataclass(frozen=True)
class Descriptor:
    """vLLM's BatchExecutionDescriptor."""

    cg_mode: Mode
    num_tokens: int
    num_reqs: int | None


def graph(mode: str, num_reqs: int | None) -> Descriptor:
    """A graph of eight tokens."""
    return Descriptor(Mode[mode], 8, num_reqs)


PIECEWISE = graph("PIECEWISE", None)


def make_drafter() -> tuple[type, type]:
    class SpeculatorCudaGraphManager:
        def __init__(self, full: Descriptor, mixed: Descriptor = PIECEWISE) -> None:
            self.full, self.mixed = full, mixed

        def dispatch(self, num_reqs: int, num_tokens: int, uniform: int | None, num_active_loras: int) -> Descriptor:
            """The graph for steps of one query length, or that for any mix."""
            return self.mixed if uniform is None else self.full

    class TargetDependentARSpeculator:
        def __init__(self, prefill: Any, decode: Any) -> None:
            self.prefill_cudagraph_manager, self.decode_cudagraph_manager = prefill, decode

        def propose(self, input_batch: Any, last_sampled: str) -> tuple[Descriptor | None, Descriptor | None]:
            """The graphs of its first pass and of the passes after it."""
            first, later = (
                None if manager is None else manager.dispatch(input_batch.num_reqs, 8, 4, num_active_loras=0)
                for manager in (self.prefill_cudagraph_manager, self.decode_cudagraph_manager)
            )
            return first, later

    return TargetDependentARSpeculator, SpeculatorCudaGraphManager


def build_lookup(rows: list[list[int]], max_batch_size: int, ceiling: int) -> list[int]:
    """vLLM's builder, for rows without holes."""
    return [0] + [
        next((k for first, last, k in rows if first <= size <= last), rows[-1][2])
        for size in range(1, max_batch_size + 1)
    ]


class FakeVllm:
    """A vLLM in ``sys.modules``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, version: str = "0.33.0") -> None:
        self._monkeypatch = monkeypatch
        self.scheduler: Any = make_scheduler()
        self.core: Any = type("EngineCore", (), {"__init__": _keep_scheduler})
        self.worker: Any = make_worker()
        self.drafter: Any
        self.manager: Any
        self.drafter, self.manager = make_drafter()
        client = type("AsyncMPClient", (), {"call_utility_async": lambda self: None})
        self._put("vllm")
        self._put("vllm.version", __version__=version)
        self._put(SCHEDULER, Scheduler=self.scheduler)
        self._put(CORE, EngineCore=self.core)
        self._put(CORE_CLIENT, AsyncMPClient=client)
        self._put(TABLES, build_dynamic_sd_schedule_lookup=build_lookup)
        self._put(LOGGERS, StatLoggerBase=type("StatLoggerBase", (), {}))
        self._put(SAMPLING, SamplingParams=SimpleNamespace, RequestOutputKind=lambda: None)
        self._put(WORKER, WorkerWrapperBase=self.worker)
        self._put(SPECULATOR, TargetDependentARSpeculator=self.drafter)
        self._put(GRAPHS, SpeculatorCudaGraphManager=self.manager)

    def lose(self, module: str, name: str | None = None) -> None:
        """As in a version that has moved it."""
        if name is None:
            self._monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
            return
        owner: Any = sys.modules[module]
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        self._monkeypatch.delattr(owner, last)

    def replace(self, module: str, name: str, value: Callable[..., Any]) -> None:
        self._monkeypatch.setattr(sys.modules[module], name, value)

    def _put(self, name: str, **members: Any) -> None:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if end == len(parts) or not isinstance(sys.modules.get(path), ModuleType):
                module = ModuleType(path)
                module.__path__ = []
                self._monkeypatch.setitem(sys.modules, path, module)
        sys.modules[name].__dict__.update(members)


def _keep_scheduler(core: Any, scheduler: Any) -> None:
    core.scheduler = scheduler
