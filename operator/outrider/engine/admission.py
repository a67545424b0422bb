"""What is checked of a service before anything is rendered, beyond what schema and CEL can say.

Each rule answers with the reason of a condition and a sentence that names the field, the values and the remedy. A fault
raises; what is only doubtful is admitted with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from outrider.core import graphs
from outrider.core.schedule import InvalidSchedule
from outrider.engine import capabilities as known
from outrider.engine import flags
from outrider.engine.command_line import initial_schedule, kept_values, speculative_tokens_values, takes_table
from outrider.engine.config import EngineConfig
from outrider.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class Admitted:
    """The service may run; ``warnings`` are sentences for status and events."""

    warnings: tuple[str, ...] = ()


def admit(config: EngineConfig) -> Admitted:
    """Check one engine.

    Raises:
        InvalidSpec: it cannot work; the message names everything that was found, the reason the first of it.
    """
    faults = [*_arguments(config), *_environment(config), *_gpus(config), *_method(config)]
    if not faults:
        faults = [*_schedule(config)]
    if faults:
        raise InvalidSpec(faults[0][0], "; ".join(message for _, message in faults))
    return Admitted(tuple(_warnings(config)))


Faults = Iterator[tuple[str, str]]


def _arguments(config: EngineConfig) -> Faults:
    if config.extra_args and not config.extra_args[0].startswith("-"):
        yield (
            "ArgumentRefused",
            f"spec.engine.extraArgs[0] is {config.extra_args[0]!r}, which vLLM would take for a model: begin with a"
            " flag",
        )
    for position, argument in enumerate(config.extra_args):
        flag = flags.owned_flag(argument)
        if flag is None:
            continue
        name = argument.split("=", 1)[0]
        meaning = flag if name == flag else f"{name}, which vLLM may read as {flag},"
        yield "ArgumentRefused", f"spec.engine.extraArgs[{position}]: {meaning} {flags.FLAGS[flag]}; remove it"


def _environment(config: EngineConfig) -> Faults:
    for name in config.extra_env:
        why = flags.refused_variable(name)
        if why is not None:
            yield "VariableRefused", f"spec.engine.env: {name} {why}; remove it"


def _gpus(config: EngineConfig) -> Faults:
    if config.gpus != config.tensor_parallel_size:
        yield (
            "GpusNotUsed",
            f"spec.resources.gpus is {config.gpus} and spec.parallelism.tensor {config.tensor_parallel_size}: each GPU"
            " of a replica"
            " takes one share, so set one of them only",
        )
    drafter_size = config.drafter.tensor_parallel_size if config.drafter else None
    if drafter_size not in (None, 1, config.tensor_parallel_size):
        yield (
            "DrafterParallelism",
            f"spec.speculation.draft.tensorParallelSize is {drafter_size}: it must be 1 or"
            f" {config.tensor_parallel_size}",
        )


def _method(config: EngineConfig) -> Faults:
    row = known.capabilities(config.version)
    if row is not None and config.speculates and config.method not in row.methods:
        yield (
            "MethodNotInVersion",
            f"spec.speculation.method: vLLM {config.version} has no {config.method}; it has"
            f" {', '.join(sorted(row.methods))}",
        )


def _schedule(config: EngineConfig) -> Faults:
    """Only asked once everything else is in order, since the K depend on the method."""
    values = speculative_tokens_values(config)
    if config.mode == "Fixed" and not takes_table(config) and kept_values(config) != {config.max_speculative_tokens}:
        yield (
            "OneSpeculativeTokens",
            f"spec.speculation.tuning: with {config.method} this engine drafts maxSpeculativeTokens in every step, so"
            " mode Fixed can"
            " keep only that number: set maxSpeculativeTokens to it, and leave schedule out",
        )
        return
    if graphs.step_of(values) > graphs.MAX_FIXED_STEP:
        yield (
            "NoCommonGraphs",
            f"spec.speculation.tuning.schedule asks for {_listed(values)}: no CUDA graph sizes up to"
            f" {graphs.CAPTURE_LIMIT} tokens"
            f" serve them all; choose among {_listed(graphs.choose_speculative_tokens(config.max_speculative_tokens))}",
        )
        return
    try:
        initial_schedule(config)
    except InvalidSchedule as error:
        yield from (("ScheduleInvalid", f"spec.speculation.tuning.schedule: {fault}") for fault in error.faults)


def _warnings(config: EngineConfig) -> Iterator[str]:
    if config.version is None:
        yield (
            "spec.engine.image is set without spec.engine.version: the version is unknown, so nothing that depends on"
            " it was checked"
        )
    elif known.capabilities(config.version) is None:
        yield (
            f"vLLM {config.version} is not in the table of known versions (0.33): method and live tuning were not"
            " checked"
        )
    if not known.has(config.version, known.SHUTDOWN_TIMEOUT_SINCE):
        yield (
            f"vLLM {config.version} cannot finish running requests when it stops (that came with 0.18): answers will"
            " be cut off"
        )
    if any(argument.startswith("--enable-lora") for argument in config.extra_args) and config.speculates:
        yield "adapters change the model but not its drafter: acceptance may differ from adapter to adapter"
    if config.memory_bytes is not None and config.shared_memory_bytes > config.memory_bytes:
        yield (
            f"spec.resources.sharedMemory, {config.shared_memory_bytes / 2**30:g}Gi, is more than memory,"
            f" {config.memory_bytes / 2**30:g}Gi, which it counts against: an engine that fills it is killed; raise"
            " memory"
            " or lower sharedMemory"
        )
    if config.speculates:
        yield from _holes(config)
        yield from _speculation_warnings(config)


def _holes(config: EngineConfig) -> Iterator[str]:
    for before, after in pairwise(config.rows if config.mode == "Fixed" else ()):
        if after.first > before.last + 1:
            k = before.num_speculative_tokens
            yield (
                f"spec.speculation.tuning.schedule has no row for batch {before.last + 1}-{after.first - 1}: K {k} of"
                f" the row before it is used there; to say so end that row at {after.first - 1}"
            )


def _speculation_warnings(config: EngineConfig) -> Iterator[str]:
    values, wanted = speculative_tokens_values(config), config.initial_speculative_tokens
    if len(values) == 1 and config.mode in ("Adaptive", "Observe"):
        support = known.method_support(config.version, config.method)
        why = (
            support.live.evidence if not support.live.possible else f"vLLM {config.version} has no table by batch size"
        )
        yield f"speculative tokens stay at {values[0]}: {why}"
    elif not config.rows and wanted not in values:
        took = initial_schedule(config).values[0]
        yield (
            f"spec.speculation.tuning.initialSpeculativeTokens {wanted} has no CUDA graphs at a ceiling of"
            f" {config.max_speculative_tokens}, so {took} is used; choose among {_listed(values)}"
        )
    step = graphs.step_of(values)
    if step > 2 * graphs.MAX_STEP or (config.mode == "Fixed" and step > graphs.MAX_STEP):
        yield (
            f"the speculative tokens {_listed(values)} share graph sizes in steps of {step} tokens only: small batches"
            " are padded"
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))
