"""Every name of vLLM that the plugin touches, looked up in the sources of each version that it is meant for.

The real engine of the other suites is 0.32.0 on a processor; the version that is supported runs on GPUs alone. So its
wheel is read and not run. To support another version: a line in `wheels.WHEELS`, its beginning in
`vllm_adapter.VERSIONS`, and a run of this file.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from outrider_runtime import vllm_adapter
from tests.engine import wheels
from tests.engine.conftest import need_environment
from tests.engine.wheels import Sources

pytestmark = pytest.mark.engine

VERSIONS = (*wheels.WHEELS, wheels.INSTALLED)
SIGNATURES: Mapping[str, str] = {
    "vllm.v1.core.sched.scheduler:Scheduler.update_from_output": "self, scheduler_output, …",
    "vllm.v1.engine.core_client:AsyncMPClient.call_utility_async": "self, method, *args",
    "vllm.v1.engine.async_llm:AsyncLLM.generate": "self, prompt, sampling_params, request_id, …",
    "vllm.v1.metrics.loggers:StatLoggerBase.__init__": "self, vllm_config, engine_index, …",
    "vllm.v1.metrics.loggers:StatLoggerBase.record": "self, scheduler_stats, iteration_stats, …",
    "vllm.v1.metrics.loggers:StatLoggerBase.log_engine_initialized": "self",
    "vllm.v1.spec_decode.dynamic.utils:build_dynamic_sd_schedule_lookup": (
        "num_speculative_tokens_per_batch_size, vllm_max_batch_size, vllm_num_speculative_tokens"
    ),
    "vllm.plugins.endpoint_plugins.interface:EndpointPlugin.attach_router": "self, app",
    "vllm.plugins.endpoint_plugins.interface:EndpointPlugin.init_state": "self, engine_client, state, args",
}
"""Positional parameters that the plugin passes or expects by place; … stands for any more."""
GUARD_SIGNATURES: Mapping[str, str] = {
    "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator:TargetDependentARSpeculator.propose": (
        "self, input_batch, …"
    ),
    "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils:SpeculatorCudaGraphManager.dispatch": (
        "self, num_reqs, num_tokens, uniform_token_count, …"
    ),
}
FIELDS: Mapping[str, tuple[str, ...]] = {
    "vllm.sampling_params": ("max_tokens", "temperature", "ignore_eos", "detokenize", "output_kind", "DELTA"),
    "vllm.v1.core.sched.scheduler": ("has_unfinished_requests",),
    "vllm.v1.engine": ("outputs",),
    "vllm.v1.engine.async_llm": ("engine_core", "vllm_config"),
    "vllm.v1.metrics.stats": ("num_generation_tokens",),
    "vllm.config.speculative": ("num_speculative_tokens",),
    "vllm.config.compilation": ("cudagraph_capture_sizes", "cudagraph_mode"),
    "vllm.config.vllm": ("use_v2_model_runner",),
}
"""What the plugin reads besides `vllm_adapter.ATTRIBUTES`."""
GUARD_FIELDS: Mapping[str, tuple[str, ...]] = {
    "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator": ("prefill_cudagraph_manager",),
    "vllm.v1.worker.gpu.input_batch": ("num_reqs_after_padding",),
    "vllm.v1.worker.gpu.cudagraph_utils": ("cg_mode", "num_reqs"),
}
GROUPS = ("vllm.general_plugins", "vllm.endpoint_plugins", "vllm.stat_logger_plugins")


@pytest.fixture(scope="module")
def sources(request: pytest.FixtureRequest) -> Callable[[str], Sources]:
    """The sources of a version."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    reporter = request.config.pluginmanager.getplugin("terminalreporter")

    def report(line: str) -> None:
        """Past pytest's capture: a download takes long enough to look like a hang."""
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            if reporter is not None:  # a worker of pytest-xdist has no terminal
                reporter.ensure_newline()
                reporter.write_line(line, flush=True)

    def of(version: str) -> Sources:
        if version in wheels.WHEELS:
            return Sources(wheels.fetch(version, report))
        need_environment()
        return Sources(wheels.installed())

    return of


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_plugin_touches_is_there(sources: Callable[[str], Sources], version: str) -> None:
    assert faults(sources(version)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_guard_touches_is_there(sources: Callable[[str], Sources], version: str) -> None:
    """Where vLLM runs on GPUs; on a processor the second runner does not run, so there it is only said."""
    found = guard_faults(sources(version))
    if version in wheels.WHEELS:
        assert found == []
    for fault in found:
        warnings.warn(f"vLLM {version}: {fault}", stacklevel=1)


def test_the_adapter_takes_the_versions_that_were_read_and_no_others() -> None:
    assert {version.rpartition(".")[0] + "." for version in VERSIONS} == set(vllm_adapter.VERSIONS)


@pytest.mark.parametrize(
    ("module", "old", "new", "fault"),
    [
        pytest.param(
            "vllm.v1.core.sched.scheduler",
            r"def update_from_output\b",
            "def take_output",
            "vllm.v1.core.sched.scheduler has no Scheduler.update_from_output",
            id="a method renamed",
        ),
        pytest.param(
            "vllm.v1.worker.gpu.cudagraph_utils",
            r"def dispatch\b",
            "def select",
            "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils"
            " has no SpeculatorCudaGraphManager.dispatch",
            id="an inherited method renamed",
        ),
        pytest.param(
            "vllm.v1.core.sched.output",
            r"\bnum_spec_tokens_to_schedule\b",
            "num_drafts",
            "vllm.v1.core.sched.output has no attribute num_spec_tokens_to_schedule",
            id="a field renamed",
        ),
        pytest.param(
            "vllm.v1.core.sched.scheduler",
            r"scheduler_output: SchedulerOutput,(\s+)model_runner_output: ModelRunnerOutput,",
            r"model_runner_output: ModelRunnerOutput,\1scheduler_output: SchedulerOutput,",
            "vllm.v1.core.sched.scheduler: Scheduler.update_from_output takes (self, model_runner_output,"
            " scheduler_output), not (self, scheduler_output, …)",
            id="parameters swapped",
        ),
    ],
)
def test_a_change_is_noticed(
    sources: Callable[[str], Sources], tmp_path: Path, module: str, old: str, new: str, fault: str
) -> None:
    copy = _copy(sources(next(iter(wheels.WHEELS))), tmp_path)
    path = copy.path(module)
    text, count = re.subn(old, new, path.read_text())
    assert count
    path.write_text(text)
    assert fault in [*faults(Sources(tmp_path)), *guard_faults(Sources(tmp_path))]


def faults(sources: Sources) -> list[str]:
    """What the plugin touches and these sources do not have, one sentence each."""
    groups = sources.texts("vllm.plugins")
    return [
        *_missing_names(sources, vllm_adapter.NAMES),
        *_missing_fields(sources, vllm_adapter.ATTRIBUTES),
        *_missing_fields(sources, FIELDS),
        *_other_signatures(sources, SIGNATURES),
        *(f"vllm.plugins does not know the group {group}" for group in GROUPS if group not in groups),
    ]


def guard_faults(sources: Sources) -> list[str]:
    """What the guard of the drafter's CUDA graphs touches and these sources do not have."""
    return [
        *_missing_names(sources, vllm_adapter.GUARD_NAMES),
        *_missing_fields(sources, GUARD_FIELDS),
        *_other_signatures(sources, GUARD_SIGNATURES),
    ]


def _missing_names(sources: Sources, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [
        f"{module} has no {name}"
        for module, members in names.items()
        for name in members
        if sources.find(module, name) is None
    ]


def _missing_fields(sources: Sources, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [
        f"{module} has no attribute {name}"
        for module, members in names.items()
        for name in members
        if name not in sources.attributes(module)
    ]


def _other_signatures(sources: Sources, signatures: Mapping[str, str]) -> list[str]:
    found = []
    for place, expected in signatures.items():
        module, _, name = place.partition(":")
        wanted, parameters = expected.split(", "), sources.parameters(module, name)
        length = len(wanted) - 1 if wanted[-1] == "…" else None
        if parameters[:length] != wanted[:length]:
            found.append(f"{module}: {name} takes ({', '.join(parameters)}), not ({expected})")
    return found


def _copy(sources: Sources, place: Path) -> Sources:
    """The files that are looked at, and those that they lead to, below another folder."""
    modules = {*vllm_adapter.NAMES, *vllm_adapter.ATTRIBUTES, *vllm_adapter.GUARD_NAMES, *FIELDS, *GUARD_FIELDS}
    modules |= {name.partition(":")[0] for name in (*SIGNATURES, *GUARD_SIGNATURES)} | {"vllm.plugins"}
    root = sources.path("vllm").parents[1]
    for module in modules:
        path = sources.path(module)
        target = place / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return Sources(place)
