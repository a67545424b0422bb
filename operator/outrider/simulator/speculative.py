"""What vLLM 0.33 makes of ``--speculative-config``: the drafter, the table, or the end of the process.

Sentences are ours, outcomes vLLM's: unknown keys and bad values end the process at once; a table that overlaps or does
not start at 1 ends it after loading; an empty one, one under data parallel, or one for a method that cannot vary its K
is dropped with a warning; K above the ceiling is clamped and ranges past the largest batch are cut in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from outrider.core.schedule import from_lookup
from outrider.simulator.documents import SpeculativeConfig, parse_speculative
from outrider.simulator.exits import EngineExit, refuse
from outrider.simulator.settings import Speculation

MTP_METHODS = frozenset(
    {
        *("deepseek_mtp", "dots3_note_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp", "glm4_moe_lite_mtp", "mtp"),
        *("glm_ocr_mtp", "ernie_mtp", "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp", "qwen3_next_mtp"),
        *("qwen4_exp_mtp", "qwen3_5_mtp", "longcat_flash_mtp", "bailing_hybrid_v3_mtp", "minimax_m3_mtp"),
        *("bailing_hybrid_mtp", "kimi_k3_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp", "step5_mtp", "hy_v3_mtp"),
        *("hy_v4_mtp", "gemma4_mtp", "inkling_mtp", "glm5_next_mtp"),
    }
)
"""Names of one method: vLLM calls all of them ``mtp`` in the end."""
METHODS = (
    *("ngram", "ngram_gpu", "suffix", "draft_model", "eagle", "eagle3", "mtp", "dflash", "dspark", "custom_class"),
    "extract_hidden_states",
)
NEEDS_DRAFT_MODEL = frozenset({"draft_model", "eagle", "eagle3", "dflash"})
NOT_ON_V2 = frozenset({"suffix", "custom_class"})
TABLE_ON_V1 = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the rest of the command line matters for speculation."""

    max_num_seqs: int
    max_model_len: int
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    v2: bool = True


def parse_speculation(document: Any, around: Surroundings, warn: Callable[[str], None]) -> Speculation:
    """Check the document and resolve its table.

    Raises:
        EngineExit: as vLLM's process would end.
    """
    config = parse_speculative(document)
    method = _method(config)
    ceiling = _ceiling(config, method)
    _check_method(config, method, around)
    _check_draft(config, method, around)
    _check_sampling(config, ceiling)
    rows = config.num_speculative_tokens_per_batch_size
    if rows is None:
        return Speculation(method, ceiling, None, draft=config.model or "")
    for condition, why in (
        (not rows, "the table is empty"),
        (around.data_parallel_size > 1, "data parallel ranks must run the same K"),
        (not around.v2 and method not in TABLE_ON_V1, f"method {method} cannot vary K on this model runner"),
    ):
        if condition:
            warn(f"num_speculative_tokens_per_batch_size is ignored, K stays {ceiling}: {why}")
            return Speculation(method, ceiling, None, draft=config.model or "")
    lookup = _lookup(rows, around.max_num_seqs, ceiling)
    named = tuple(sorted({min(k, ceiling) for _, _, k in rows}))
    return Speculation(method, ceiling, from_lookup(lookup), named, config.model or "")


def _method(config: SpeculativeConfig) -> str:
    method = config.method or _detected(config.model or "")
    if method in MTP_METHODS:
        return "mtp"
    if method not in METHODS:
        raise refuse(f"1 validation error for SpeculativeConfig: method {method!r}; it should be one of {METHODS}")
    return method


def _detected(model: str) -> str:
    """vLLM's guess from the drafter's name."""
    markers = ("eagle3", "eagle", "dflash", "dspark")
    return next((marker for marker in markers if marker in model.lower()), "draft_model" if model else "")


def _ceiling(config: SpeculativeConfig, method: str) -> int:
    ceiling: int | None = config.num_speculative_tokens
    if ceiling is None:
        raise refuse("num_speculative_tokens must be provided: the drafter's config names no n_predict")
    if method == "extract_hidden_states" and ceiling != 1:
        raise refuse("extract_hidden_states takes num_speculative_tokens 1 only")
    return ceiling


def _check_method(config: SpeculativeConfig, method: str, around: Surroundings) -> None:
    if config.tensor_parallel_size is not None:
        raise refuse("'tensor_parallel_size' is not a key here: pass 'draft_tensor_parallel_size' instead")
    if method in NOT_ON_V2 and around.v2:
        raise refuse(f"Model Runner V2 does not yet support speculative method {method!r}")
    if method == "suffix":
        raise refuse("Arctic Inference is required for suffix decoding and is not installed (ImportError)")
    if method == "dspark" and not around.v2:
        raise refuse("Model Runner V1 does not support speculative method 'dspark'")
    low, high = config.prompt_lookup_min, config.prompt_lookup_max
    if method in ("ngram", "ngram_gpu") and low is not None and high is not None and low > high:
        raise refuse(f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}")
    if config.use_heterogeneous_vocab and method != "draft_model":
        raise refuse("use_heterogeneous_vocab is only for method draft_model")


def _check_draft(config: SpeculativeConfig, method: str, around: Surroundings) -> None:
    if method in NEEDS_DRAFT_MODEL and not config.model:
        raise refuse(f"num_speculative_tokens was provided but without speculative model (method {method})")
    draft_tp, target_tp = config.draft_tensor_parallel_size, around.tensor_parallel_size
    if draft_tp is not None and draft_tp not in (1, target_tp):
        raise refuse(
            f"draft_tensor_parallel_size {draft_tp} cannot be other value than 1 or target model"
            f" tensor_parallel_size {target_tp}"
        )
    if config.max_model_len is not None and config.max_model_len > around.max_model_len:
        raise refuse(f"draft max_model_len {config.max_model_len} is above the target's {around.max_model_len}")


def _check_sampling(config: SpeculativeConfig, ceiling: int) -> None:
    rates, length = config.synthetic_acceptance_rates, config.synthetic_acceptance_length
    if config.rejection_sample_method == "synthetic":
        if (rates is None) == (length is None):
            raise refuse("synthetic rejection sampling takes exactly one of acceptance rates and acceptance length")
        if rates is not None:
            _check_rates(rates, ceiling)
        if length is not None and not 1 <= length <= ceiling + 1:
            raise refuse(f"synthetic_acceptance_length must be in [1, {ceiling + 1}], got {length}")
    elif rates is not None or length is not None:
        raise refuse("synthetic acceptance is given but rejection_sample_method is not 'synthetic'")
    if config.rejection_sample_method == "fly" and ceiling < max(2, (config.fly_window_size or 0) + 1):
        raise refuse("FLy requires num_speculative_tokens of at least 2, and a fly_window_size below it")


def _check_rates(rates: list[float], ceiling: int) -> None:
    if len(rates) != ceiling:
        raise refuse(f"synthetic_acceptance_rates must have length {ceiling}, got {rates}")
    if not all(0 <= rate <= 1 for rate in rates):
        raise refuse(f"synthetic_acceptance_rates entries must be in [0, 1], got {rates}")
    if any(after > before for before, after in pairwise(rates)):
        raise refuse(f"synthetic_acceptance_rates must be non-increasing, got {rates}")


def _lookup(rows: list[tuple[int, int, int]], max_num_seqs: int, ceiling: int) -> list[int]:
    """K for batch sizes 1, 2, …, as the scheduler builds it; its faults show only now, after loading."""
    expected = 1
    lookup: list[int] = []
    for first, last, k in sorted(rows):
        if first < 1 or last < first or k < 0:
            raise EngineExit(1, f"invalid range {first}-{last}:{k} in the speculation table", after_load=True)
        if not lookup and first != 1:
            raise EngineExit(1, f"the speculation table must start at batch size 1, not {first}", after_load=True)
        if first < expected:
            raise EngineExit(1, f"the ranges of the speculation table overlap at {first}", after_load=True)
        hole, size = min(first, max_num_seqs + 1) - expected, min(last, max_num_seqs) - min(first, max_num_seqs + 1) + 1
        lookup += [lookup[-1]] * hole if lookup else []
        lookup += [min(k, ceiling)] * size
        expected = last + 1
    lookup += [lookup[-1]] * (max_num_seqs - len(lookup))
    return lookup
