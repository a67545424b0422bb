"""What an engine exports: vLLM 0.33's families and the plugin's, as text for a scrape or as values for virtual time.

The text is put together from prepared parts: one scrape has some 450 samples and must not cost the simulated engines of
a whole cluster their processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import utils

from outrider.simulator.admin import AdminPort, total_stalls
from outrider.simulator.counters import FINISH_REASONS, CellKey, StepCell
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.settings import BLOCK_SIZE

_go: Callable[[float], str] = utils.floatToGoString
"""A number as Prometheus' own clients write it."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, Mapping[str, str], float]
Labels = Mapping[str, str]
Read = Callable[[float], Sequence[float]]

_CELL_COLUMNS: Mapping[str, Callable[[StepCell], float]] = {
    "outrider_engine_steps_total": lambda cell: cell.steps,
    "outrider_engine_step_seconds_total": lambda cell: cell.seconds,
    "outrider_engine_step_seconds_squared_total": lambda cell: cell.seconds_squared,
    "outrider_engine_step_requests_total": lambda cell: cell.requests,
}
_NO_LABELS: Sequence[Labels] = ({},)


@dataclass(slots=True)
class Family:
    """One metric: its samples' names and labels, and where their values come from."""

    name: str
    """As exposed: a counter's ends in ``_total``."""
    kind: str
    help: str
    read: Read
    """Values at a time, in the order of ``samples``."""
    samples: list[tuple[str, Labels]]
    prefixes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.prefixes = [f"{name}{_braces(labels)} " for name, labels in self.samples]

    def header(self) -> str:
        """The lines before the samples."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"

    def created(self, created_s: float) -> str:
        """The family of creation times that goes with a counter or histogram; empty for a gauge."""
        if self.kind == "gauge":
            return ""
        name = f"{self.name if self.kind == 'histogram' else self.name.removesuffix('_total')}_created"
        own = [labels for sample, labels in self.samples if self.kind == "counter" or sample.endswith("_count")]
        lines = "".join(f"{name}{_braces(labels)} {_go(created_s)}\n" for labels in own)
        return f"# HELP {name} {self.help}\n# TYPE {name} gauge\n{lines}"


class Exposition:
    """All metrics of one engine's process.

    ``created_s`` is the process start as exported (Unix time in a server, the virtual clock in a replay).
    """

    def __init__(self, engine: SimulatedEngine, admin: AdminPort | None, created_s: float) -> None:
        self._engine, self._admin, self._created_s = engine, admin, created_s
        self._labels = {"engine": "0", "model_name": engine.settings.served_model_name}
        self._families = list(self._all())
        self._static = [(family, family.header(), family.created(created_s)) for family in self._families]
        self._cells: list[CellKey] = []
        self._cell_families: list[Family] = []

    def text(self, now_s: float) -> bytes:
        """A scrape's body."""
        self._engine.settle()
        parts = []
        for family, header, created in self._static:
            parts.append(header)
            parts += [
                f"{prefix}{_go(value)}\n" for prefix, value in zip(family.prefixes, family.read(now_s), strict=True)
            ]
            parts.append(created)
        for family in self._cell_tables():
            values = zip(family.prefixes, family.read(now_s), strict=True)
            parts.append(family.header())
            parts += [f"{prefix}{_go(value)}\n" for prefix, value in values]
        return "".join(parts).encode()

    def samples(self, now_s: float, names: Collection[str] | None = None) -> Iterator[Sample]:
        """Name, labels and value of every sample, or of those with these names; creation times are left out."""
        self._engine.settle()
        for family in self.families(names):
            for (name, labels), value in zip(family.samples, family.read(now_s), strict=True):
                if names is None or name in names:
                    yield name, labels, float(value)

    def families(self, names: Collection[str] | None = None) -> list[Family]:
        """All families, or those with samples of these names; there are more of them when `num_cells` grows."""
        every = [*self._families, *self._cell_tables()]
        return every if names is None else [family for family in every if any(n in names for n, _ in family.samples)]

    @property
    def num_cells(self) -> int:
        """Kinds of steps that have samples of their own."""
        cells = self._engine.counters.cells
        return 0 if self._admin is None else len(cells)

    # The families, in vLLM's order.

    def _all(self) -> Iterator[Family]:
        started = self._created_s
        yield Family(
            "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.",
            lambda _: [started], [("process_start_time_seconds", {})],
        )  # fmt: skip
        if self._engine.settings.speculation is not None:
            yield from self._speculation()
        yield from self._gauges()
        yield from self._traffic()
        yield from self._histograms()
        yield self._cache_config()
        yield self._family(
            "outrider_simulator_dilation", "gauge", "Times slower than the measured card: no real engine has this.",
            lambda _: [self._engine.profile.dilation], own={},
        )  # fmt: skip
        if self._admin is not None:
            yield from self._plugin(self._admin)

    def _speculation(self) -> Iterator[Family]:
        counters = self._engine.counters
        positions = [{"position": str(position)} for position in range(counters.max_speculative_tokens)]
        one = "vllm:spec_decode_num_"
        yield self._counter(f"{one}drafts_total", "Drafts verified.", lambda _: [counters.num_drafts])
        yield self._counter(f"{one}draft_tokens_total", "Draft tokens.", lambda _: [counters.num_draft_tokens])
        yield self._counter(f"{one}accepted_tokens_total", "Accepted.", lambda _: [counters.num_accepted_tokens])
        yield self._counter(
            f"{one}accepted_tokens_per_pos_total", "Accepted by draft position.",
            lambda _: counters.accepted_per_pos.tolist(), positions,
        )  # fmt: skip

    def _gauges(self) -> Iterator[Family]:
        engine = self._engine
        reasons = [{"reason": "capacity"}, {"reason": "deferred"}]
        states = [{"sleep_state": state} for state in ("awake", "weights_offloaded", "discard_all")]
        for name, text, read, extra in (
            ("num_requests_running", "Requests in the batch.", lambda _: [engine.num_running], _NO_LABELS),
            ("num_requests_waiting", "Requests in the queue.", lambda _: [engine.num_waiting], _NO_LABELS),
            ("num_requests_waiting_by_reason", "The same by reason.", lambda _: [engine.num_waiting, 0], reasons),
            ("engine_sleep_state", "1 for the present state.", lambda _: [1, 0, 0], states),
            ("kv_cache_usage_perc", "KV blocks in use, 0 to 1.", lambda _: [engine.kv_cache_usage], _NO_LABELS),
        ):
            yield self._family(f"vllm:{name}", "gauge", text, read, extra)

    def _traffic(self) -> Iterator[Family]:
        counters = self._engine.counters
        sources = [{"source": source} for source in ("local_compute", "local_cache_hit", "external_kv_transfer")]
        tiers = [{"source": tier} for tier in ("device", "host", "p2p", "disk", "external_unspecified")]
        for name in ("prefix_cache", "external_prefix_cache", "mm_cache"):
            asked: Read = (lambda _: [counters.prompt_tokens]) if name == "prefix_cache" else (lambda _: [0])
            yield self._counter(f"vllm:{name}_queries_total", "Looked up in the cache.", asked)
            yield self._counter(f"vllm:{name}_hits_total", "Found in the cache.", lambda _: [0])
        yield self._counter("vllm:num_preemptions_total", "Preemptions.", lambda _: [counters.num_preemptions])
        yield self._counter("vllm:prompt_tokens_total", "Prefill tokens.", lambda _: [counters.prompt_tokens])
        yield self._counter(
            "vllm:prompt_tokens_by_source_total", "The same by source.",
            lambda _: [counters.prompt_tokens, 0, 0], sources,
        )  # fmt: skip
        yield self._counter("vllm:prompt_tokens_cached_total", "Cached prompt tokens.", lambda _: [0])
        yield self._counter(
            "vllm:prompt_tokens_cached_by_source_total", "The same by tier.", lambda _: [0] * len(tiers), tiers
        )
        yield self._counter("vllm:generation_tokens_total", "Output.", lambda _: [counters.generation_tokens])
        yield self._counter(
            "vllm:request_success_total", "Finished requests.", lambda _: list(counters.finished.values()),
            [{"finished_reason": reason} for reason in FINISH_REASONS],
        )  # fmt: skip
        limits = [{"reason": reason} for reason in ("max_num_queued_reqs", "max_num_queued_tokens")]
        model = {"model_name": self._labels["model_name"]}  # this family has no engine label in vLLM either
        yield self._family(
            "vllm:admission_rejections_total", "counter", "Refused by a limit.", lambda _: [0, 0], limits, own=model
        )

    def _histograms(self) -> Iterator[Family]:
        for name, histogram in self._engine.counters.histograms.items():
            bounds = [_go(bound) for bound in (*histogram.bounds, float("inf"))]
            samples: list[tuple[str, Labels]] = [(f"{name}_bucket", self._labels | {"le": bound}) for bound in bounds]
            samples += [(f"{name}_count", self._labels), (f"{name}_sum", self._labels)]

            def read(_: float, of: Callable[[], list[int]] = histogram.cumulative, name: str = name) -> list[float]:
                counts = of()
                return [*counts, counts[-1], self._engine.counters.histograms[name].sum]

            yield Family(name, "histogram", "As in vLLM.", read, samples)

    def _cache_config(self) -> Family:
        settings = self._engine.settings
        labels = {
            "block_size": str(BLOCK_SIZE),
            "cache_dtype": settings.kv_cache_dtype,
            "enable_prefix_caching": "False",
            "engine": "0",
            "gpu_memory_utilization": str(settings.gpu_memory_utilization),
            "kv_cache_max_concurrency": f"{settings.num_gpu_blocks * BLOCK_SIZE / settings.max_model_len:.2f}",
            "kv_cache_size_tokens": str(settings.num_gpu_blocks * BLOCK_SIZE),
            "num_gpu_blocks": str(settings.num_gpu_blocks),
        }
        return self._family("vllm:cache_config_info", "gauge", "The cache.", lambda _: [1], own=labels)

    def _plugin(self, admin: AdminPort) -> Iterator[Family]:
        engine, counters = self._engine, self._engine.counters
        own = {"engine": "0"}
        positions = [{"position": str(position)} for position in range(counters.max_speculative_tokens)]
        yield self._family(
            "outrider_engine_draft_tokens_per_pos_total", "counter", "Drafts that proposed this position.",
            lambda _: counters.drafted_per_pos.tolist(), positions, own=own,
        )  # fmt: skip
        readings: Mapping[str, tuple[str, Callable[[float], float]]] = {
            "schedule_generation": ("gauge", lambda _: admin.generation),
            "schedule_initial": ("gauge", lambda _: admin.initial),
            "schedule_lease_seconds": ("gauge", lambda now_s: max(0.0, (admin.lease_ends_s or now_s) - now_s)),
            "controllable": ("gauge", lambda _: not engine.settings.not_controllable_because),
            "longest_step_seconds": ("gauge", lambda _: counters.take_longest_step_s("scrape")),
            "stalls_total": ("counter", lambda now_s: total_stalls(engine, now_s)[0]),
            "stall_seconds_total": ("counter", lambda now_s: total_stalls(engine, now_s)[1]),
            "seconds_since_token": ("gauge", lambda now_s: now_s - engine.last_token_s),
        }
        for name, (kind, reading) in readings.items():

            def read(now_s: float, of: Callable[[float], float] = reading) -> list[float]:
                return [of(now_s)]

            yield self._family(f"outrider_engine_{name}", kind, "See the runtime plugin.", read, own=own)

    def _cell_tables(self) -> list[Family]:
        """The plugin's step cells, which appear as steps of their kind do."""
        if self._admin is None:
            return []
        cells = self._engine.counters.cells
        if len(self._cells) != len(cells):
            self._cells = sorted(cells, key=lambda key: (key.batch, key.num_speculative_tokens, key.mixed))
            self._cell_families = [self._cell_family(name) for name in _CELL_COLUMNS]
        return self._cell_families

    def _cell_family(self, name: str) -> Family:
        keys, cells, column = self._cells, self._engine.counters.cells, _CELL_COLUMNS[name]
        extra = [
            {
                "batch": str(key.batch),
                "kind": "mixed" if key.mixed else "decode",
                "speculative_tokens": str(key.num_speculative_tokens),
            }
            for key in keys
        ]
        text = "Engine steps by batch bucket, scheduled K and kind."
        return self._family(
            name, "counter", text, lambda _: [column(cells[key]) for key in keys], extra, own={"engine": "0"}
        )

    def _counter(self, name: str, text: str, read: Read, extra: Sequence[Labels] = _NO_LABELS) -> Family:
        return self._family(name, "counter", text, read, extra)

    def _family(
        self,
        name: str,
        kind: str,
        text: str,
        read: Read,
        extra: Sequence[Labels] = _NO_LABELS,
        own: Labels | None = None,
    ) -> Family:
        base = self._labels if own is None else own
        return Family(name, kind, text, read, [(name, {**base, **labels}) for labels in extra])


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
