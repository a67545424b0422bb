"""The part of the spec that says how to speculate: method, drafter, ceiling, and what each method can be told."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import Bool, Int, ModelId, Revision, Word
from outrider.api.model import MAX_CONTEXT, Source
from outrider.api.rules import Part, Rule, Values
from outrider.api.tuning import MAX_SPECULATIVE_TOKENS, Tuning

Method = Literal["eagle", "eagle3", "mtp", "draft_model", "ngram", "suffix", "dflash", "dspark"]

NEED_DRAFT: tuple[Method, ...] = ("eagle", "eagle3", "draft_model", "dflash", "dspark")
NO_DRAFT: tuple[Method, ...] = ("ngram", "suffix")
SHARE_HEAD: tuple[Method, ...] = ("eagle", "eagle3", "mtp")


class Draft(Part):
    """The drafter of methods that have one."""

    id: ModelId
    """Repository of the draft model, or a path inside the container, for example
    `yuhuili/EAGLE3-LLaMA3.1-Instruct-8B`, up to 512 characters and no address."""
    revision: Revision | None = None
    """Commit, tag or branch of the drafter, for example `v2`; pin it, so that acceptance does not change between two
    pods. The repository's main branch when left out."""
    source: Source | None = None
    """Where the drafter's weights come from: hub, volume, image or objectStore. The hub of the model, or the path in
    id, when left out."""
    quantization: Word | None = None
    """Quantisation of the drafter in vLLM's words, for example `fp8`; what the drafter's own files say when left out.
    It is never taken over from the model."""
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=16)] | None = None
    """GPUs that share the drafter, 1 to 16: 1, or as many as share the model (parallelism.tensor), which it is when
    left out. Set 1 when the drafter's heads do not divide by that."""
    max_length: Annotated[Int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    """Longest context of the drafter in tokens, 1 to 16777216, not longer than the model's, for example 32768; the
    drafter's own when left out."""


class Ngram(Part):
    """Bounds of method ngram, which looks up the last tokens of a text in what came before."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.promptLookupMin) || !has(self.promptLookupMax) || self.promptLookupMin <= self.promptLookupMax",
            lambda ngram: (
                ngram.prompt_lookup_min is None
                or ngram.prompt_lookup_max is None
                or ngram.prompt_lookup_min <= ngram.prompt_lookup_max
            ),
            "promptLookupMin must not be above promptLookupMax: lower one or raise the other",
            ".promptLookupMin",
            Values(
                "promptLookupMin %d is above promptLookupMax %d: lower one or raise the other",
                ("self.promptLookupMin", "self.promptLookupMax"),
                lambda ngram: (ngram.prompt_lookup_min, ngram.prompt_lookup_max),
            ),
        ),
    )

    prompt_lookup_min: Annotated[Int, Field(ge=1, le=64)] | None = None
    """Fewest tokens that must be found again, 1 to 64, for example 2; promptLookupMax when left out, and 5 when both
    are. Fewer find more and are kept less often."""
    prompt_lookup_max: Annotated[Int, Field(ge=1, le=64)] | None = None
    """Most tokens that are looked for, tried first, 1 to 64, for example 5; promptLookupMin when left out, and 5 when
    both are."""


class Suffix(Part):
    """Bounds of method suffix, which keeps trees of past texts and answers."""

    max_tree_depth: Annotated[Int, Field(ge=1, le=1024)] | None = None
    """Deepest path in a tree, in tokens, 1 to 1024: match and draft together; 24 when left out."""
    max_cached_requests: Annotated[Int, Field(ge=0, le=1_000_000)] | None = None
    """Past answers that are kept, oldest given up first, 0 to 1000000; 0 keeps none and drafts from the request alone.
    10000 when left out; each costs main memory."""
    max_spec_factor_percent: Annotated[Int, Field(ge=0, le=10_000)] | None = None
    """Tokens drafted for each token that matched, in percent, 0 to 10000, for example 200 for two; 100 when left
    out."""
    min_token_probability_percent: Annotated[Int, Field(ge=0, le=100)] | None = None
    """Share of past texts that must have gone on with a token for it to be drafted, in percent, 0 to 100; 10 when left
    out."""


def _fly_alone(name: str, text: str) -> Rule:
    return Rule(
        f"!has(self.{text}) || self.method == 'Fly'",
        lambda sampling: getattr(sampling, name) is None or sampling.method == "Fly",
        f"{text} is for method Fly alone: remove it, or set rejectionSampling.method to Fly",
        f".{text}",
    )


class RejectionSampling(Part):
    """How the model decides which draft tokens it keeps."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _fly_alone("fly_window_size", "flyWindowSize"),
        _fly_alone("fly_entropy_threshold_percent", "flyEntropyThresholdPercent"),
        _fly_alone("fly_entropy_top_k", "flyEntropyTopK"),
    )

    method: Literal["Standard", "Block", "Fly"]
    """What is compared: Standard judges one token at a time and Block all together, both without changing what the
    model would say; Fly also keeps tokens that the model finds likely enough, so answers may change. For example
    Block."""
    fly_window_size: Annotated[Int, Field(ge=1, le=MAX_SPECULATIVE_TOKENS - 1)] | None = None
    """Following tokens that the model must agree with before Fly keeps a mismatch, 1 to 15 and less than
    maxSpeculativeTokens; 6, or one less than maxSpeculativeTokens where that is smaller, when left out."""
    fly_entropy_threshold_percent: Annotated[Int, Field(ge=0, le=1000)] | None = None
    """Entropy of the model's likeliest tokens from which Fly may keep a mismatch, in hundredths, 0 to 1000; 30 when
    left out. Lower keeps more and changes answers more."""
    fly_entropy_top_k: Annotated[Int, Field(ge=1, le=1024)] | None = None
    """Likeliest tokens that the entropy is taken of, 1 to 1024; 3 when left out."""


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


def _only_for(methods: tuple[Method, ...], name: str, text: str) -> Rule:
    """``text`` may stand beside these methods only."""
    words = methods[0] if len(methods) == 1 else f"{', '.join(methods[:-1])} and {methods[-1]}"
    return Rule(
        f"!has(self.{text}) || self.method in {list(methods)}",
        lambda spec: getattr(spec, name) is None or spec.method in methods,
        f"{text} is for {'method' if len(methods) == 1 else 'methods'} {words} alone: remove it, or choose"
        f" {'that method' if len(methods) == 1 else 'one of them'}",
        f".{text}",
    )


def _fly_window(spec: Any) -> int | None:
    """Tokens of Fly's window as the user set it."""
    window: int | None = None if spec.rejection_sampling is None else spec.rejection_sampling.fly_window_size
    return window


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
        _only_for(("ngram",), "ngram", "ngram"),
        _only_for(("suffix",), "suffix", "suffix"),
        _only_for(("draft_model",), "heterogeneous_vocab", "heterogeneousVocab"),
        _only_for(("dspark",), "adaptive_verification", "adaptiveVerification"),
        _only_for(SHARE_HEAD, "draft_head_quantization", "draftHeadQuantization"),
        Rule(
            f"!has(self.draftSampling) || !(self.method in {list(NO_DRAFT)})",
            lambda spec: spec.draft_sampling is None or spec.method not in NO_DRAFT,
            "draftSampling is about a draft model, which ngram and suffix do not have: remove it, or choose another"
            " method",
            ".draftSampling",
        ),
        Rule(
            "!has(self.heterogeneousVocab) || !self.heterogeneousVocab || !has(self.draftSampling)"
            " || self.draftSampling == 'Greedy'",
            lambda spec: not spec.heterogeneous_vocab or spec.draft_sampling != "Probabilistic",
            "draftSampling must be Greedy beside heterogeneousVocab, which compares tokens and not probabilities:"
            " remove one of them",
            ".draftSampling",
        ),
        Rule(
            "!has(self.rejectionSampling) || self.rejectionSampling.method != 'Fly' || self.maxSpeculativeTokens >= 2",
            lambda spec: (
                spec.rejection_sampling is None
                or spec.rejection_sampling.method != "Fly"
                or spec.max_speculative_tokens >= 2
            ),
            "rejectionSampling.method Fly looks at the tokens after a mismatch, so maxSpeculativeTokens must be 2 or"
            " more: raise it, or choose Standard or Block",
            ".maxSpeculativeTokens",
        ),
        Rule(
            "!has(self.rejectionSampling) || !has(self.rejectionSampling.flyWindowSize)"
            " || self.rejectionSampling.flyWindowSize < self.maxSpeculativeTokens",
            lambda spec: (window := _fly_window(spec)) is None or window < spec.max_speculative_tokens,
            "rejectionSampling.flyWindowSize must be less than maxSpeculativeTokens: lower it or raise the ceiling",
            ".rejectionSampling.flyWindowSize",
            Values(
                "rejectionSampling.flyWindowSize %d must be less than maxSpeculativeTokens %d: lower it or raise the"
                " ceiling",
                ("self.rejectionSampling.flyWindowSize", "self.maxSpeculativeTokens"),
                lambda spec: (_fly_window(spec), spec.max_speculative_tokens),
            ),
        ),
    )

    method: Method
    """How tokens are drafted, in vLLM's words: eagle, eagle3, mtp, draft_model, dflash and dspark use a model, ngram
    and suffix the text itself. For example `eagle3`. Changing it restarts the engines, one at a time."""
    draft: Draft | None = None
    """The drafter, for example `{id: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B}`; needed by eagle, eagle3, draft_model,
    dflash and dspark, refused by ngram and suffix. When left out, mtp uses the layers in the model itself."""
    max_speculative_tokens: Annotated[Int, Field(le=MAX_SPECULATIVE_TOKENS)]
    """Ceiling of speculative tokens a step, 1 to 16, fixed when an engine starts; a higher one costs memory even when
    unused. For example 5."""
    tuning: Tuning = Field(default_factory=Tuning)
    """How the number is chosen under the ceiling, for example `{mode: Observe}`; Outrider adapts it to load and
    acceptance when left out."""
    ngram: Ngram | None = None
    """Bounds of method ngram, for example `{promptLookupMin: 2, promptLookupMax: 5}`; both are 5 when left out."""
    suffix: Suffix | None = None
    """Bounds of method suffix, for example `{maxTreeDepth: 32}`; vLLM's own when left out."""
    heterogeneous_vocab: Bool | None = None
    """Whether drafter and model may have different vocabularies; only the tokens of both are then drafted. For method
    draft_model only; false when left out."""
    adaptive_verification: Bool | None = None
    """Whether the engine verifies fewer tokens of requests whose drafts it trusts less. For method dspark only; false
    when left out."""
    draft_sampling: Literal["Greedy", "Probabilistic"] | None = None
    """How the drafter picks tokens: Greedy takes the likeliest, Probabilistic samples, which is kept more often at high
    temperatures and costs GPU memory for its probabilities. Greedy when left out."""
    draft_head_quantization: Literal["fp8", "nvfp4"] | None = None
    """Quantisation of the drafter's copy of the model's output layer, fp8 or nvfp4; the model verifies with its own, so
    only acceptance can change. For methods eagle, eagle3 and mtp; not quantised when left out."""
    rejection_sampling: RejectionSampling | None = None
    """How the model decides which draft tokens it keeps, for example `{method: Block}`; Standard when left out."""
