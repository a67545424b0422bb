"""How each method is run, and whether K may change while it runs, with the evidence.

A version that no row names is not refused: its methods are run as in the best known one, and the user is told so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from outrider.engine.capabilities.features import TABLE_SINCE, Feature, has, supports
from outrider.engine.capabilities.versions import KNOWN_BEST, Version, parse_version
from outrider.engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Live:
    """Whether K may change while the engine runs, and what is known about it."""

    possible: bool
    proven: bool
    """True when a run on a GPU showed it without stalls; otherwise status says that it rests on reading."""
    evidence: str


@dataclass(frozen=True, slots=True)
class Method:
    """One way to draft in one range of versions."""

    runner: Literal["V1", "V2"]
    live: Live
    drafting_follows_k: bool
    """Whether a smaller K also drafts less; otherwise it only verifies less."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One row: versions from ``first`` up to, but without, ``before``."""

    first: Version
    before: Version
    methods: Mapping[str, Method]


_RUN = Live(
    possible=True,
    proven=True,
    evidence="one H100, FlashAttention 3, full graphs: with capture sizes that are multiples of all K+1, 4,822 random"
    " changes in 10 minutes and no step over 0.2 s; with vLLM's own sizes steps of 15 s (docs/benchmarks/runtime)",
)
_RUN_WHOLE_DRAFTS = Live(
    possible=True,
    proven=True,
    evidence="one H100, full graphs, capture sizes that are multiples of all K+1: 358 random changes in 47 s, all"
    " 1,384 requests answered, and no step over 0.21 s where it was read (docs/benchmarks/runtime)",
)
_SAME_DISPATCH = Live(
    possible=True,
    proven=False,
    evidence="shown with eagle and draft_model on an H100; by reading, this method's graphs are chosen by the same"
    " rule, and with sizes that are multiples of all K+1 it leaves no unsafe batch",
)
_ONE_K = Live(
    possible=False,
    proven=True,
    evidence="the V1 runner of vLLM 0.33.0 drops the table for this method and drafts the ceiling in every step",
)
_UNKNOWN = Method(
    "V1",
    Live(
        possible=False,
        proven=False,
        evidence="nothing is known of how K could change for this method, so the ceiling is drafted in each step",
    ),
    drafting_follows_k=False,
)
_FOLLOWS = Method("V2", _SAME_DISPATCH, drafting_follows_k=True)
_VERIFIES_LESS = Method("V2", _SAME_DISPATCH, drafting_follows_k=False)

TABLE = (
    Capabilities(
        first=(0, 33, 0),
        before=(0, 34, 0),
        methods={
            "eagle": Method("V2", _RUN, drafting_follows_k=True),
            "eagle3": _FOLLOWS,
            "mtp": _FOLLOWS,  # with one module; several are drafted whole
            "draft_model": Method("V2", _RUN_WHOLE_DRAFTS, drafting_follows_k=False),
            "ngram": _VERIFIES_LESS,
            "dflash": _VERIFIES_LESS,
            "dspark": _VERIFIES_LESS,
            "suffix": Method("V1", _ONE_K, drafting_follows_k=False),
        },
    ),
)


def capabilities(version: str | None) -> Capabilities | None:
    """The row for a version; None when nothing is known about it, or the version itself is not known."""
    if version is None:
        return None
    number = parse_version(version)
    return next((row for row in TABLE if row.first <= number < row.before), None)


def method_support(version: str | None, method: str) -> Method:
    """How a method is run: by the version's row, or as in the best known version where there is none.

    A method that neither has, such as one that newer engines dropped, is run as if nothing were known of it.
    """
    row = capabilities(version) or capabilities(KNOWN_BEST)
    assert row is not None
    return row.methods.get(method, _UNKNOWN)


def runner(config: EngineConfig) -> Literal["V1", "V2"]:
    """The model runner; vLLM 0.33.0 maps no vocabularies on its newer one."""
    if not config.speculates:
        return "V2"
    return "V1" if config.heterogeneous_vocab else method_support(config.version, config.method).runner


def no_table_because(config: EngineConfig) -> str | None:
    """Why an engine that speculates drafts the ceiling in every step, as a clause; None when K may follow the batch."""
    support = method_support(config.version, config.method)
    if not support.live.possible:
        return support.live.evidence
    if not has(config.version, TABLE_SINCE):
        return f"vLLM {config.version} has no table by batch size"
    if config.data_parallel_size > 1 and supports(KNOWN_BEST, Feature.TABLE_WITH_DATA_PARALLEL) is False:
        return "data ranks that draft different numbers would wait for each other for ever, so vLLM drops the table"
    if config.heterogeneous_vocab:
        return "with vocabularies that differ vLLM uses its older runner, where changes of K were seen to be slow"
    return None


def table_possible(config: EngineConfig) -> bool:
    """Whether an engine that speculates can choose K by batch size."""
    return no_table_because(config) is None
