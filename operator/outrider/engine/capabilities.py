"""What each vLLM version can do, as data with its evidence.

A version that no row names is not refused: it is rendered as the best known one, and the user is told that nothing was
checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Version = tuple[int, int, int]

KNOWN_BEST = "0.33.0"

# Boundaries read in release notes and sources of vLLM.
SHUTDOWN_TIMEOUT_SINCE: Version = (0, 18, 0)
TABLE_SINCE: Version = (
    0,
    24,
    0,
)  # num_speculative_tokens_per_batch_size; an unknown key stops earlier engines at start
HISTOGRAM_BUCKETS_SINCE: Version = (0, 30, 1)


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


def parse_version(text: str) -> Version:
    """The first three numbers of a version such as ``0.33.0`` or ``0.33.0rc1``.

    Raises:
        ValueError: the text does not begin with three numbers.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a version such as {KNOWN_BEST}")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def capabilities(version: str | None) -> Capabilities | None:
    """The row for a version; None when nothing is known about it, or the version itself is not known."""
    if version is None:
        return None
    number = parse_version(version)
    return next((row for row in TABLE if row.first <= number < row.before), None)


def method_support(version: str | None, method: str) -> Method:
    """How a method is run: by the version's row, or as in the best known version where there is none."""
    row = capabilities(version) or capabilities(KNOWN_BEST)
    assert row is not None
    return row.methods[method]


def has(version: str | None, since: Version) -> bool:
    """Whether a version has something that came with ``since``; an unknown version counts as the best known one."""
    return parse_version(version or KNOWN_BEST) >= since
