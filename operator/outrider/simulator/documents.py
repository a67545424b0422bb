"""JSON documents of the command line, checked by the rules of vLLM's own models: types, ranges, unknown keys.

pydantic does it there and here, so that "5" and 5.0 count as the integer 5, and "five" and 5.5 do not. What fields mean
to each other is for those who read them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from outrider.simulator.counters import BUCKET_FAMILIES
from outrider.simulator.exits import refuse

AtLeastOne = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SpeculativeConfig:
    """``--speculative-config``: every key that vLLM 0.33 knows; the simulated engine uses the first dozen."""

    num_speculative_tokens: Annotated[int, Field(gt=0)] = None  # type: ignore[assignment] # left out, but never null
    num_speculative_tokens_per_batch_size: list[tuple[int, int, int]] | None = None
    method: str | None = None
    model: str | None = None
    draft_tensor_parallel_size: AtLeastOne | None = None
    tensor_parallel_size: int | None = None
    max_model_len: AtLeastOne | None = None
    prompt_lookup_max: AtLeastOne | None = None
    prompt_lookup_min: AtLeastOne | None = None
    use_heterogeneous_vocab: bool = False
    rejection_sample_method: Literal["standard", "synthetic", "block", "fly"] = "standard"
    synthetic_acceptance_rates: list[float] | None = None
    synthetic_acceptance_length: float | None = None
    enforce_eager: bool | None = None
    quantization: str | None = None
    moe_backend: str | None = None
    attention_backend: str | None = None
    kv_cache_dtype: str | None = None
    revision: str | None = None
    code_revision: str | None = None
    index_share_for_mtp_iteration: bool | None = None
    disable_padded_drafter_batch: bool = False
    disable_eagle_block_drop: bool = False
    disable_lookahead_block_hashes: bool = False
    draft_lm_head_quantization: Literal["fp8", "nvfp4"] | None = None
    use_local_argmax_reduction: bool = False
    parallel_drafting: bool = False
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    draft_load_config: dict[str, Any] | None = None
    enable_adaptive_verification: bool = False
    draft_sample_method: Literal["greedy", "probabilistic"] = "greedy"
    dspark_draft_topk: AtLeastOne | None = None
    xpress_topc: Annotated[int, Field(ge=0)] | None = None
    fly_window_size: AtLeastOne | None = None
    fly_entropy_threshold: Annotated[float, Field(ge=0)] = 0.3
    fly_entropy_top_k: AtLeastOne = 3


@dataclass(frozen=True, kw_only=True)
class CompilationConfig:
    """``--compilation-config``, as far as it decides which CUDA graphs exist; its other keys are not looked at."""

    cudagraph_mode: Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"] | None = None
    cudagraph_capture_sizes: list[int] | None = None
    max_cudagraph_capture_size: int | None = None


_SPECULATIVE = TypeAdapter(SpeculativeConfig)
_COMPILATION = TypeAdapter(CompilationConfig)
_BUCKETS = TypeAdapter(dict[str, list[float]])
_ANY = TypeAdapter(dict[str, Any])


def parse_speculative(document: Any) -> SpeculativeConfig:
    """The fields of a speculative config.

    Raises:
        EngineExit: something is unknown, of another type or out of range.
    """
    if not isinstance(document, Mapping):
        kind = type(document).__name__
        raise refuse(f"'{kind}' object has no attribute 'items': the speculative config is no object")
    try:
        return _SPECULATIVE.validate_python({key.replace("-", "_"): value for key, value in document.items()})
    except ValidationError as error:
        raise refuse(_explained("SpeculativeConfig", error)) from error


def parse_compilation(text: str) -> CompilationConfig:
    """The fields of a compilation config; vLLM checks it while it parses arguments, hence with status 2.

    Raises:
        argparse.ArgumentTypeError: something is of another type.
    """
    try:
        document = _ANY.validate_json(text)
        mode = document.get("cudagraph_mode")
        return _COMPILATION.validate_python(
            document | ({"cudagraph_mode": mode.upper()} if isinstance(mode, str) else {})
        )
    except ValidationError as error:
        raise argparse.ArgumentTypeError(_explained("CompilationConfig", error)) from error


def parse_buckets(document: Any) -> dict[str, tuple[float, ...]]:
    """Histogram bounds by bucket family.

    Raises:
        EngineExit: a family that vLLM does not have, or bounds that do not rise.
    """
    if document is None:
        return {}
    try:
        families = _BUCKETS.validate_python(document)
    except ValidationError as error:
        raise refuse(_explained("ObservabilityConfig", error)) from error
    for family, bounds in families.items():
        fault = _bounds_fault(family, bounds, document[family])
        if fault:
            raise refuse(f"1 validation error for ObservabilityConfig: custom_histogram_buckets[{family!r}]: {fault}")
    return {family: tuple(bounds) for family, bounds in families.items()}


def _bounds_fault(family: str, bounds: list[float], given: list[object]) -> str:
    if family not in BUCKET_FAMILIES:
        return f"unknown bucket family; known families: {sorted(BUCKET_FAMILIES)}"
    if not bounds:
        return "bucket list must not be empty"
    if any(isinstance(bound, bool) for bound in given):
        return "a bound must be a number, not a boolean"
    if not all(math.isfinite(bound) and bound > 0 for bound in bounds):
        return "bounds must be finite and greater than 0"
    if any(after <= before for before, after in pairwise(bounds)):
        return "bounds must be strictly increasing"
    return ""


def _explained(title: str, error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    faults = "; ".join(f"{'.'.join(map(str, one['loc'])) or title}: {one['msg']}" for one in found)
    return f"{len(found)} validation error{'s' if len(found) > 1 else ''} for {title}: {faults}"
