"""The schedule and the K that the engine has CUDA graphs for; asked once everything else is in order, since they
depend on the method.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from outrider.core import graphs
from outrider.core.schedule import InvalidSchedule
from outrider.engine import capabilities as known
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.command_line import initial_schedule, kept_values, speculative_tokens_values, takes_table
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

_TUNING = "spec.speculation.tuning"
_SCHEDULE = f"{_TUNING}.schedule"


def _one_k(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if _keeps_one_k_but_asks_for_more(config):
        yield error(
            _TUNING,
            f"{_TUNING}: with {config.method} this engine drafts maxSpeculativeTokens in every step, so mode Fixed can"
            " keep only that number: set maxSpeculativeTokens to it, and leave schedule out"
            f" ({known.no_table_because(config)})",
        )


def _keeps_one_k_but_asks_for_more(config: EngineConfig) -> bool:
    return (
        config.speculates
        and config.mode == "Fixed"
        and not takes_table(config)
        and kept_values(config) != {config.max_speculative_tokens}
    )


def _common_graphs(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    values = speculative_tokens_values(config)
    if not _without_graphs(config):
        return
    yield error(
        _SCHEDULE,
        f"{_SCHEDULE} asks for {_listed(values)}: no CUDA graph sizes up to {graphs.CAPTURE_LIMIT} tokens serve them"
        f" all; choose among {_listed(graphs.choose_speculative_tokens(config.max_speculative_tokens))}",
    )


def _without_graphs(config: EngineConfig) -> bool:
    return (
        not _keeps_one_k_but_asks_for_more(config)
        and graphs.step_of(speculative_tokens_values(config)) > graphs.MAX_FIXED_STEP
    )


def _valid(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if _keeps_one_k_but_asks_for_more(config) or _without_graphs(config):
        return
    try:
        initial_schedule(config)
    except InvalidSchedule as fault:
        yield from (error(_SCHEDULE, f"{_SCHEDULE}: {one}") for one in fault.faults)


def _holes(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if not config.speculates or config.mode != "Fixed":
        return
    for before, after in pairwise(config.rows):
        if after.first > before.last + 1:
            k = before.num_speculative_tokens
            yield warning(
                _SCHEDULE,
                f"{_SCHEDULE} has no row for batch {before.last + 1}-{after.first - 1}: K {k} of the row before it is"
                f" used there; to say so end that row at {after.first - 1}",
            )


def _stays(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    values = speculative_tokens_values(config)
    if config.speculates and len(values) == 1 and config.mode in ("Adaptive", "Observe"):
        why = known.no_table_because(config) or "the engine has graphs for one K only"
        yield warning(_TUNING, f"speculative tokens stay at {values[0]}: {why}")


def _start(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    values, wanted = speculative_tokens_values(config), config.initial_speculative_tokens
    if not config.speculates or config.rows or wanted in values:
        return
    if len(values) == 1 and config.mode in ("Adaptive", "Observe"):
        return
    took = initial_schedule(config).values[0]
    yield warning(
        f"{_TUNING}.initialSpeculativeTokens",
        f"{_TUNING}.initialSpeculativeTokens {wanted} has no CUDA graphs at a ceiling of"
        f" {config.max_speculative_tokens}, so {took} is used; choose among {_listed(values)}",
    )


def _padded(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    values = speculative_tokens_values(config)
    step = graphs.step_of(values)
    if config.speculates and (step > 2 * graphs.MAX_STEP or (config.mode == "Fixed" and step > graphs.MAX_STEP)):
        yield warning(
            _TUNING,
            f"the speculative tokens {_listed(values)} share graph sizes in steps of {step} tokens only: small batches"
            " are padded; choose fewer, or such that K + 1 divide each other",
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


_GRAPHS_SOURCE = "docs/benchmarks/runtime; vllm-project/vllm#48494, vllm-project/vllm#49548"

CHECKS = (
    Check(
        code="OneSpeculativeTokens",
        fields=(_TUNING, "spec.speculation.maxSpeculativeTokens"),
        why="Where an engine keeps one K it drafts the ceiling in every step.",
        remedy="Set maxSpeculativeTokens to the K that you want.",
        source="_maybe_disable_dynamic_sd_for_v1 in vllm/config/vllm.py of vLLM 0.33.0",
        find=_one_k,
    ),
    Check(
        code="NoCommonGraphs",
        fields=(_SCHEDULE,),
        why="Graph sizes must be multiples of every K + 1, or target and drafter replay graphs of different batches.",
        remedy="Choose K that share sizes.",
        source=_GRAPHS_SOURCE,
        find=_common_graphs,
    ),
    Check(
        code="ScheduleInvalid",
        fields=(_SCHEDULE,),
        why="vLLM finds a bad table only after it has loaded the weights, and clamps a K above the ceiling in silence.",
        remedy="Give rows that start at 1, ascend and do not overlap, with K up to maxSpeculativeTokens.",
        source="vllm-project/vllm#32374; vllm/v1/spec_decode/dynamic/utils.py of vLLM 0.33.0",
        find=_valid,
    ),
)
"""Faults that leave no schedule to speak of."""

LATE = (
    Check(
        code="ScheduleHoles",
        fields=(_SCHEDULE,),
        why="In a hole of the table vLLM goes on with the K before it.",
        remedy="End each row where the next one starts.",
        source="build_dynamic_sd_schedule_lookup in vllm/v1/spec_decode/dynamic/utils.py of vLLM 0.33.0",
        find=_holes,
    ),
    Check(
        code="SpeculativeTokensFixed",
        fields=(_TUNING, "spec.speculation.method", "spec.engine.version"),
        why="Tuning needs an engine that takes a table by batch size.",
        remedy="Choose a version and method with a table, or mode Fixed.",
        source="vllm-project/vllm#45963; _maybe_disable_dynamic_sd_for_v1 in vllm/config/vllm.py of vLLM 0.33.0",
        find=_stays,
    ),
    Check(
        code="StartWithoutGraphs",
        fields=(f"{_TUNING}.initialSpeculativeTokens",),
        why="Graphs are captured at start, for a few K that share sizes.",
        remedy="Start with one of them.",
        source=_GRAPHS_SOURCE,
        find=_start,
    ),
    Check(
        code="SmallBatchesPadded",
        fields=(_TUNING,),
        why="Sizes that serve many K lie far apart, and a batch between them is padded to the next.",
        remedy="Choose fewer K, or such that K + 1 divide each other.",
        source=_GRAPHS_SOURCE,
        find=_padded,
    ),
)
"""Doubts, asked once there is no fault left."""
