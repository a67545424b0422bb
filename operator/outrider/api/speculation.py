"""The part of the spec that says how to speculate: method, drafter, ceiling, and how K is tuned."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import Int, ModelId, Part, Revision, Rule, Values, Word

Method = Literal["eagle", "eagle3", "mtp", "draft_model", "ngram", "suffix", "dflash", "dspark"]
Mode = Literal["Adaptive", "Observe", "Fixed", "Off"]
Policy = Literal["Goodput", "AcceptanceThreshold"]

MAX_SPECULATIVE_TOKENS = 16  # no published drafter gains beyond it, and buffers of the engine grow with the ceiling
NEED_DRAFT: tuple[Method, ...] = ("eagle", "eagle3", "draft_model", "dflash", "dspark")
NO_DRAFT: tuple[Method, ...] = ("ngram", "suffix")

SpeculativeTokens = Annotated[Int, Field(ge=0, le=MAX_SPECULATIVE_TOKENS)]


class Draft(Part):
    """The drafter of methods that have one."""

    id: ModelId
    """Repository or path of the draft model, for example `yuhuili/EAGLE3-LLaMA3.1-Instruct-8B`."""
    revision: Revision | None = None
    """Commit, tag or branch of the drafter; pin it, so that acceptance does not change between two pods."""
    quantization: Word | None = None
    """Quantisation of the drafter, for example `fp8`. It is never taken over from the model."""
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=16)] | None = None
    """GPUs that share the drafter: 1 or the model's own number. Set 1 when the drafter's heads do not divide by
    that."""
    max_length: Annotated[Int, Field(ge=1)] | None = None
    """Longest context of the drafter in tokens; not longer than the model's."""


class ScheduleRow(Part):
    """One range of batch sizes and its number of speculative tokens."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.last >= self.first",
            lambda row: row.last >= row.first,
            "a schedule row must not end before it starts: raise last or lower first",
            ".last",
            Values(
                "schedule row %d-%d ends before it starts: raise last or lower first",
                ("self.first", "self.last"),
                lambda row: (row.first, row.last),
            ),
        ),
    )

    first: Annotated[Int, Field(ge=1, le=65536)]
    """Smallest batch size of the row, in requests of one engine step; the first row starts at 1."""
    last: Annotated[Int, Field(ge=1, le=65536)]
    """Largest batch size of the row, itself included; larger batches keep the last row's tokens."""
    speculative_tokens: SpeculativeTokens
    """Speculative tokens at these batch sizes, 0 to maxSpeculativeTokens; 0 drafts nothing."""


def _ascending(tuning: Tuning) -> bool:
    return all(after.first > before.last for before, after in pairwise(tuning.schedule or ()))


class Tuning(Part):
    """How the number of speculative tokens is chosen while the service runs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minSpeculativeTokens) || !has(self.initialSpeculativeTokens)"
            " || self.minSpeculativeTokens <= self.initialSpeculativeTokens",
            lambda tuning: (
                tuning.min_speculative_tokens is None
                or tuning.initial_speculative_tokens is None
                or tuning.min_speculative_tokens <= tuning.initial_speculative_tokens
            ),
            "minSpeculativeTokens must not be above initialSpeculativeTokens: lower one or raise the other",
            ".minSpeculativeTokens",
            Values(
                "minSpeculativeTokens %d is above initialSpeculativeTokens %d: lower one or raise the other",
                ("self.minSpeculativeTokens", "self.initialSpeculativeTokens"),
                lambda tuning: (tuning.min_speculative_tokens, tuning.initial_speculative_tokens),
            ),
        ),
        Rule(
            "!has(self.mode) || self.mode != 'Fixed' || has(self.schedule) || has(self.initialSpeculativeTokens)",
            lambda tuning: (
                tuning.mode != "Fixed" or tuning.schedule is not None or tuning.initial_speculative_tokens is not None
            ),
            "mode Fixed keeps one schedule for ever: give it as schedule, or as one number in initialSpeculativeTokens",
            ".mode",
        ),
        Rule(
            "!has(self.schedule) || size(self.schedule) == 0 || self.schedule[0].first == 1",
            lambda tuning: not tuning.schedule or tuning.schedule[0].first == 1,
            "the first row of schedule must start at 1: it covers the smallest batch",
            ".schedule",
        ),
        Rule(
            "!has(self.schedule) || (self.schedule.map(row, row.first).isSorted() && self.schedule.all(row,"
            " self.schedule.exists_one(other, other.first <= row.first && row.first <= other.last)))",
            _ascending,
            "the rows of schedule overlap or are out of order: start each row after the last batch size of the row"
            " before it",
            ".schedule",
        ),
    )

    mode: Mode | None = None
    """Adaptive decides and acts; Observe decides and reports but changes nothing; Fixed keeps the given schedule; Off
    starts the engine without a drafter. Adaptive when left out. Going to or from Off restarts the engines, one at a
    time. In YAML write `"Off"` with its quotes: the bare word is a boolean there."""
    policy: Policy | None = None
    """Goodput weighs measured step times against acceptance and the objectives; AcceptanceThreshold looks at acceptance
    alone. Goodput when left out."""
    min_speculative_tokens: SpeculativeTokens | None = None
    """Fewest speculative tokens that tuning may choose, 0 to maxSpeculativeTokens; 0 when left out."""
    initial_speculative_tokens: SpeculativeTokens | None = None
    """Speculative tokens of an engine before the first decision reaches it, and after an hour without one; 3, or
    maxSpeculativeTokens where that is less, when left out. In mode Fixed without a schedule: the number that is
    kept."""
    schedule: Annotated[list[ScheduleRow], Field(min_length=1, max_length=32)] | None = None
    """The schedule that mode Fixed keeps, by batch size in ascending order, for example
    `[{first: 1, last: 16, speculativeTokens: 3}, {first: 17, last: 256, speculativeTokens: 1}]`."""


_TOO_HIGH = "self.tuning.schedule.filter(row, row.speculativeTokens > self.maxSpeculativeTokens)"


def _row_too_high(spec: Speculation) -> tuple[int, ...]:
    """The first row above the ceiling, and the ceiling."""
    ceiling = spec.max_speculative_tokens
    row = next(row for row in spec.tuning.schedule or () if row.speculative_tokens > ceiling)
    return row.first, row.last, row.speculative_tokens, ceiling


def _within(name: str, text: str) -> Rule:
    """``tuning.<name>`` may not pass the ceiling."""
    return Rule(
        f"!has(self.tuning) || !has(self.tuning.{text}) || self.tuning.{text} <= self.maxSpeculativeTokens",
        lambda spec: getattr(spec.tuning, name) is None or getattr(spec.tuning, name) <= spec.max_speculative_tokens,
        f"tuning.{text} is above maxSpeculativeTokens, the ceiling that the engine starts with: lower it or raise the"
        " ceiling",
        f".tuning.{text}",
        Values(
            f"tuning.{text} %d is above maxSpeculativeTokens %d, the ceiling that the engine starts with: lower it or"
            " raise the ceiling",
            (f"self.tuning.{text}", "self.maxSpeculativeTokens"),
            lambda spec: (getattr(spec.tuning, name), spec.max_speculative_tokens),
        ),
    )


class Speculation(Part):
    """How the engines speculate."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.maxSpeculativeTokens >= 1",
            lambda spec: spec.max_speculative_tokens >= 1,
            'maxSpeculativeTokens must be 1 or more; to run without speculation set tuning.mode: "Off" (quoted)',
            ".maxSpeculativeTokens",
        ),
        Rule(
            f"!(self.method in {list(NEED_DRAFT)}) || has(self.draft)",
            lambda spec: spec.method not in NEED_DRAFT or spec.draft is not None,
            "this method needs a drafter: name its model in draft.id, or choose ngram, suffix or mtp",
            ".draft",
        ),
        Rule(
            f"!(self.method in {list(NO_DRAFT)}) || !has(self.draft)",
            lambda spec: spec.method not in NO_DRAFT or spec.draft is None,
            "ngram and suffix draft from the text itself: remove draft, or choose a method that has a draft model",
            ".draft",
        ),
        _within("min_speculative_tokens", "minSpeculativeTokens"),
        _within("initial_speculative_tokens", "initialSpeculativeTokens"),
        Rule(
            "!has(self.tuning) || !has(self.tuning.schedule)"
            " || self.tuning.schedule.all(row, row.speculativeTokens <= self.maxSpeculativeTokens)",
            lambda spec: all(
                row.speculative_tokens <= spec.max_speculative_tokens for row in spec.tuning.schedule or ()
            ),
            "tuning.schedule has a row above maxSpeculativeTokens, which the engine would clamp in silence: lower it"
            " or raise"
            " the ceiling",
            ".tuning.schedule",
            Values(
                "row %d-%d of tuning.schedule has %d speculative tokens, above maxSpeculativeTokens %d, which the"
                " engine would clamp in silence: lower it or raise the ceiling",
                (
                    *(f"{_TOO_HIGH}[0].{field}" for field in ("first", "last", "speculativeTokens")),
                    "self.maxSpeculativeTokens",
                ),
                _row_too_high,
            ),
        ),
    )

    method: Method
    """How tokens are drafted, in vLLM's words, for example `eagle3`."""
    draft: Draft | None = None
    """The drafter; needed by eagle, eagle3, draft_model, dflash and dspark, refused by ngram and suffix."""
    max_speculative_tokens: Annotated[Int, Field(le=MAX_SPECULATIVE_TOKENS)]
    """Ceiling of speculative tokens a step, 1 to 16, fixed when an engine starts; a higher one costs memory even when
    unused. For example 5."""
    tuning: Tuning = Field(default_factory=Tuning)
    """How the number is chosen under the ceiling."""
