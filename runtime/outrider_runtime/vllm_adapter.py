"""Everything of vLLM that the plugin touches, and nothing else touches vLLM.

`NAMES` lists what must be where it is expected; `fault` compares it with the installed version before anything is
changed, and `tests/engine` does so with the sources of every supported version. On any doubt vLLM is left as it is: it
serves as if the plugin were not there, and the admin port says why.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

from outrider_runtime.engine_half import EngineFacts, EngineHalf

logger = logging.getLogger("vllm.outrider")  # below vLLM's own logger, so that its format and level apply

VERSIONS = ("0.32.", "0.33.")
"""Beginnings of the versions whose names were compared; 0.32 is here for the tests on a processor."""

NAMES: dict[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.scheduler": ("Scheduler.__init__", "Scheduler.schedule", "Scheduler.update_from_output"),
    "vllm.v1.engine.core": ("EngineCore",),
    "vllm.v1.engine.core_client": ("AsyncMPClient.call_utility_async",),
    "vllm.v1.spec_decode.dynamic.utils": ("build_dynamic_sd_schedule_lookup",),
    "vllm.v1.metrics.loggers": ("StatLoggerBase",),
    "vllm.sampling_params": ("SamplingParams", "RequestOutputKind"),
    "vllm.v1.worker.worker_base": ("WorkerWrapperBase.init_device",),
}
"""Modules, and what the plugin uses of them, in every process."""
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.scheduler": ("dynamic_sd_lookup", "num_spec_tokens", "scheduler_config", "vllm_config"),
    "vllm.v1.core.sched.output": (
        *("num_scheduled_tokens", "total_num_scheduled_tokens", "num_spec_tokens_to_schedule"),
        *("scheduled_new_reqs", "scheduled_cached_reqs", "num_output_tokens", "resumed_req_ids"),
    ),
    "vllm.v1.metrics.stats": ("spec_decoding_stats", "num_running_reqs", "num_waiting_reqs"),
    "vllm.v1.spec_decode.metrics": ("num_draft_tokens_per_pos",),
}
"""Attributes that exist on instances only; the sources are searched for them."""
GUARD_NAMES: dict[str, tuple[str, ...]] = {
    "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator": ("TargetDependentARSpeculator.propose",),
    "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils": ("SpeculatorCudaGraphManager.dispatch",),
}
"""What the guard touches, in workers of the V2 runner alone."""

GUARD = "OUTRIDER_GRAPH_GUARD"
"""Variable that switches the guard off when it is 0, to show what happens without it."""


def version() -> str:
    """vLLM's version."""
    return str(importlib.import_module("vllm.version").__version__)


def fault() -> str:
    """Why this vLLM is left alone; empty when everything is where it should be."""
    try:
        found = version()
    except Exception as error:
        return f"the version of vLLM cannot be read: {error}"
    if not found.startswith(VERSIONS):
        return f"vLLM {found} was never tried with this plugin, which knows {' and '.join(v + 'x' for v in VERSIONS)}"
    return _missing(NAMES)


def stat_logger_base() -> Any:
    """What a stat logger must inherit from."""
    return importlib.import_module("vllm.v1.metrics.loggers").StatLoggerBase


def install_engine_half() -> None:
    """Give every engine core that is built from now on a schedule that can be told, and a meter; once a process."""
    scheduler = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    if getattr(core, "outrider_call", None) is not None:
        return
    original = scheduler.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.outrider = _attached(self)

    scheduler.__init__ = init
    core.outrider_call = _call


def install_graph_guard() -> None:
    """Let each worker set the guard when it knows its device; before that, importing its modules is too early."""
    wrapper = importlib.import_module("vllm.v1.worker.worker_base").WorkerWrapperBase
    original = wrapper.init_device
    if getattr(original, "outrider", False):
        return

    @functools.wraps(original)
    def init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            if getattr(self.vllm_config, "use_v2_model_runner", False):
                _guard_drafter()
        except Exception as error:
            logger.warning("Outrider: no guard for the drafter's CUDA graphs: %s", error)
        return result

    init_device.outrider = True  # type: ignore[attr-defined]
    wrapper.init_device = init_device


async def call(engine_client: Any, method: str, *arguments: Any) -> tuple[int, dict[str, Any]]:
    """Ask the engine core's half for something: an HTTP status and a body.

    Raises:
        Exception: whatever vLLM raises when its engine is dead or shutting down.
    """
    status, body = await engine_client.engine_core.call_utility_async("outrider_call", method, list(arguments))
    return int(status), dict(body)


async def generate(engine_client: Any, token_ids: list[int], tokens: int, request_id: str) -> AsyncIterator[int]:
    """Have a prompt of token ids answered with so many tokens, yielding how many arrived each time."""
    params = importlib.import_module("vllm.sampling_params")
    sampling = params.SamplingParams(
        max_tokens=tokens,
        temperature=0.0,
        ignore_eos=True,
        detokenize=False,
        output_kind=params.RequestOutputKind.DELTA,
    )
    async for output in engine_client.generate({"prompt_token_ids": token_ids}, sampling, request_id):
        yield len(output.outputs[0].token_ids)


def limits(engine_client: Any) -> tuple[int, int, int]:
    """Largest batch, longest request in tokens, and size of the vocabulary."""
    config = engine_client.vllm_config
    return (
        config.scheduler_config.max_num_seqs,
        config.model_config.max_model_len,
        config.model_config.get_vocab_size(),
    )


def _call(core: Any, method: str, arguments: list[Any]) -> tuple[int, dict[str, Any]]:
    """The one method that `EngineCore` gains; answers are plain values, because they cross a process boundary."""
    half: EngineHalf | None = getattr(core.scheduler, "outrider", None)
    if half is None:
        return 503, {"error": "not controllable", "reason": "the plugin could not attach to the scheduler"}
    answer = getattr(half, method)(*arguments)
    return (200, answer) if isinstance(answer, dict) else (answer.status, answer.body)


def _attached(scheduler: Any) -> EngineHalf | None:
    """The engine half of a scheduler that was just built; None, and a warning, when that fails."""
    try:
        half = EngineHalf(
            _facts(scheduler), functools.partial(_install_rows, scheduler), scheduler.has_unfinished_requests
        )
    except Exception as error:
        logger.warning("Outrider: K stays as vLLM was started: %s", error)
        return None
    if half.facts.not_controllable_because:
        logger.warning("Outrider: K stays as vLLM was started: %s", half.facts.not_controllable_because)
    _measure(scheduler, half)
    return half


def _facts(scheduler: Any) -> EngineFacts:
    config, table = scheduler.vllm_config, scheduler.dynamic_sd_lookup
    graphs = config.compilation_config
    backend = getattr(getattr(config, "attention_config", None), "backend", None)
    return EngineFacts(
        vllm_version=version(),
        max_num_seqs=scheduler.scheduler_config.max_num_seqs,
        max_speculative_tokens=scheduler.num_spec_tokens,
        start_table=None if table is None else tuple(table[1:]),
        capture_sizes=tuple(graphs.cudagraph_capture_sizes or ()),
        model_runner="V2" if getattr(config, "use_v2_model_runner", False) else "V1",
        attention_backend=getattr(backend, "name", "auto"),
        cudagraph_mode=getattr(graphs.cudagraph_mode, "name", "NONE"),
        not_controllable_because=_uncontrollable(config, table),
    )


def _uncontrollable(config: Any, table: object) -> str:
    if config.speculative_config is None:
        return "the engine does not speculate"
    if table is not None:
        return ""
    if config.parallel_config.data_parallel_size > 1:
        return "vLLM drops the schedule under data parallelism; scale by replicas"
    return (
        "the engine has no schedule: it was started without num_speculative_tokens_per_batch_size, or vLLM dropped it"
    )


def _install_rows(scheduler: Any, rows: list[list[int]]) -> None:
    """Swap the table in one assignment; the scheduler reads it once a step."""
    utils = importlib.import_module("vllm.v1.spec_decode.dynamic.utils")
    scheduler.dynamic_sd_lookup = utils.build_dynamic_sd_schedule_lookup(
        rows, scheduler.scheduler_config.max_num_seqs, scheduler.num_spec_tokens
    )


def _measure(scheduler: Any, half: EngineHalf) -> None:
    """Hear of each step of this scheduler when it is scheduled and when its results are in."""
    schedule, update = scheduler.schedule, scheduler.update_from_output
    meter, longest_decode = half.meter, 1 + scheduler.num_spec_tokens

    def begin(output: Any, now_s: float) -> None:
        requests = len(output.num_scheduled_tokens)
        if not requests:
            meter.idle()
            return
        cached = output.scheduled_cached_reqs
        mixed = (
            bool(output.scheduled_new_reqs)
            or output.total_num_scheduled_tokens > requests * longest_decode
            or 0 in cached.num_output_tokens
            or bool(cached.resumed_req_ids)
        )
        meter.scheduled(output, now_s, requests=requests, k=output.num_spec_tokens_to_schedule, mixed=mixed)

    def end(output: Any, results: Any) -> None:
        now_s, tokens = half.now_s(), any(client.outputs for client in results.values())
        if meter.enabled:
            meter.ended(output, now_s, tokens=tokens, work_left=scheduler.has_unfinished_requests())
        else:
            meter.progressed(now_s, tokens=tokens)

    @functools.wraps(schedule)
    def scheduled(*args: Any, **kwargs: Any) -> Any:
        now_s = half.before_step()
        output = schedule(*args, **kwargs)
        if meter.enabled:
            try:
                begin(output, now_s)
            except Exception as error:
                _stop_measuring(half, error)
        return output

    @functools.wraps(update)
    def updated(output: Any, *args: Any, **kwargs: Any) -> Any:
        results = update(output, *args, **kwargs)
        try:
            end(output, results)
        except Exception as error:
            _stop_measuring(half, error)
        return results

    scheduler.schedule, scheduler.update_from_output = scheduled, updated


def _stop_measuring(half: EngineHalf, error: Exception) -> None:
    if half.meter.enabled:
        half.meter.switch(False)
        logger.warning("Outrider: steps are not measured any more: %s", error)


def _guard_drafter() -> None:
    """Keep the drafter's first pass from replaying a full graph that was captured for another number of requests.

    Its attention metadata is the target's, laid out for the target's padded number of requests; vLLM looks the
    drafter's graph up by the padded number of tokens alone. See docs/decisions for what happens otherwise.
    """
    if os.environ.get(GUARD, "1") == "0" or _missing(GUARD_NAMES):
        return
    speculator = importlib.import_module("vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator")
    managers = importlib.import_module("vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils")
    drafter, manager = speculator.TargetDependentARSpeculator, managers.SpeculatorCudaGraphManager
    if getattr(drafter.propose, "outrider", False):
        return
    propose, dispatch = drafter.propose, manager.dispatch

    @functools.wraps(propose)
    def guarded_propose(self: Any, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        if self.prefill_cudagraph_manager is not None:
            self.prefill_cudagraph_manager.outrider_requests = input_batch.num_reqs_after_padding
        return propose(self, input_batch, *args, **kwargs)

    @functools.wraps(dispatch)
    def guarded_dispatch(
        self: Any, num_reqs: int, num_tokens: int, uniform: int | None, *args: Any, **kwargs: Any
    ) -> Any:
        chosen = dispatch(self, num_reqs, num_tokens, uniform, *args, **kwargs)
        expected = getattr(self, "outrider_requests", None)
        if expected is None or chosen.cg_mode.name != "FULL" or chosen.num_reqs == expected:
            return chosen
        other = dispatch(self, num_reqs, num_tokens, None, *args, **kwargs)
        if other.cg_mode.name != "FULL" or other.num_reqs == expected:
            return other
        return dataclasses.replace(other, cg_mode=type(other.cg_mode)["NONE"], num_tokens=num_tokens, num_reqs=num_reqs)

    guarded_propose.outrider = True  # type: ignore[attr-defined]
    drafter.propose, manager.dispatch = guarded_propose, guarded_dispatch


def _missing(names: dict[str, tuple[str, ...]]) -> str:
    """The first of these names that this vLLM does not have, as a sentence; empty when all are there."""
    for module, members in names.items():
        try:
            found: Any = importlib.import_module(module)
        except ImportError as error:
            return f"vLLM {version()} has no module {module}: {error}"
        for member in members:
            if not _has(found, member):
                return f"vLLM {version()} has no {module}.{member}"
    return ""


def _has(module: Any, member: str) -> bool:
    target = module
    for part in member.split("."):
        target = getattr(target, part, None)
    return callable(target)
