"""The part of the spec that says how the number of speculative tokens is chosen while a service runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import Int
from outrider.api.rules import Part, Rule, Values

Mode = Literal["Adaptive", "Observe", "Fixed", "Off"]
Policy = Literal["Goodput", "AcceptanceThreshold"]

MAX_SPECULATIVE_TOKENS = 16  # no published drafter gains beyond it, and buffers of the engine grow with the ceiling

SpeculativeTokens = Annotated[Int, Field(ge=0, le=MAX_SPECULATIVE_TOKENS)]


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
    """Smallest batch size of the row, in requests of one engine step, 1 to 65536, for example 17; the first row starts
    at 1."""
    last: Annotated[Int, Field(ge=1, le=65536)]
    """Largest batch size of the row, itself included, in requests of one engine step, 1 to 65536, for example 256;
    larger batches keep the last row's tokens."""
    speculative_tokens: SpeculativeTokens
    """Speculative tokens at these batch sizes, 0 to maxSpeculativeTokens, for example 3; 0 drafts nothing."""


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
    """Who chooses: Adaptive decides and acts, Observe decides and reports but changes nothing, Fixed keeps the given
    schedule, Off starts the engine without a drafter. Adaptive when left out. Going to or from Off restarts the
    engines, one at a time. In YAML write `"Off"` with its quotes: the bare word is a boolean there."""
    policy: Policy | None = None
    """What tuning looks at: Goodput weighs measured step times against acceptance and the objectives,
    AcceptanceThreshold looks at acceptance alone. Goodput when left out."""
    min_speculative_tokens: SpeculativeTokens | None = None
    """Fewest speculative tokens that tuning may choose, 0 to maxSpeculativeTokens, for example 1; 0 when left out."""
    initial_speculative_tokens: SpeculativeTokens | None = None
    """Speculative tokens of an engine before the first decision reaches it, and after an hour without one, 0 to
    maxSpeculativeTokens; 3, or maxSpeculativeTokens where that is less, when left out. In mode Fixed without a
    schedule: the number that is kept."""
    schedule: Annotated[list[ScheduleRow], Field(min_length=1, max_length=32)] | None = None
    """The schedule that mode Fixed keeps, 1 to 32 rows by batch size in ascending order, for example
    `[{first: 1, last: 16, speculativeTokens: 3}, {first: 17, last: 256, speculativeTokens: 1}]`; a hole keeps the
    tokens of the row before it. Fixed keeps initialSpeculativeTokens at all batch sizes when it is left out."""
