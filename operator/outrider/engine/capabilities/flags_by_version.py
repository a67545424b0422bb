"""Arguments of vLLM's server that came, went or changed their name."""

from __future__ import annotations

from outrider.engine.capabilities.versions import History, absent, history, there

_ARGUMENTS = "vllm/engine/arg_utils.py"


def _gone(last: str, missing: str, instead: str, first: str = "0.6.3") -> tuple[History, str]:
    """A flag seen up to ``last`` and no more from ``missing`` on, with what to do instead, as an imperative."""
    before = [absent("0.6.3", "0.6.3")] if first != "0.6.3" else []
    spans = (*before, there(first, last), absent(missing))
    return history(*spans, source=f"{_ARGUMENTS} of vLLM {last} and {missing}"), instead


def _new(missing: str, first: str, instead: str) -> tuple[History, str]:
    """A flag not there up to ``missing`` and seen from ``first`` on."""
    return history(
        absent("0.6.3", missing), there(first), source=f"{_ARGUMENTS} of vLLM {missing} and {first}"
    ), instead


_METHOD = "say it in spec.speculation"
_UPDATE = "leave it out, or set a newer spec.engine.version"

FLAGS_BY_VERSION: dict[str, tuple[History, str]] = {
    "--speculative-model": _gone("0.6.3", "0.8.5", _METHOD),
    "--num-speculative-tokens": _gone("0.6.3", "0.8.5", _METHOD),
    "--ngram-prompt-lookup-max": _gone("0.6.3", "0.8.5", "set spec.speculation.ngram"),
    "--ngram-prompt-lookup-min": _gone("0.6.3", "0.8.5", "set spec.speculation.ngram"),
    "--speculative-disable-by-batch-size": _gone("0.6.3", "0.8.5", "set spec.speculation.tuning"),
    "--speculative-draft-tensor-parallel-size": _gone(
        "0.6.3", "0.8.5", "set spec.speculation.draft.tensorParallelSize"
    ),
    "--speculative-max-model-len": _gone("0.6.3", "0.8.5", "set spec.speculation.draft.maxLength"),
    "--speculative-model-quantization": _gone("0.6.3", "0.8.5", "set spec.speculation.draft.quantization"),
    "--spec-decoding-acceptance-method": _gone("0.6.3", "0.8.5", "set spec.speculation.rejectionSampling"),
    "--worker-use-ray": _gone("0.6.3", "0.8.5", "use --distributed-executor-backend"),
    "--max-context-len-to-capture": _gone("0.6.3", "0.8.5", "leave it out: the operator sizes the CUDA graphs"),
    "--use-v2-block-manager": _gone("0.9.2", "0.11.0", "leave it out"),
    "--num-scheduler-steps": _gone("0.9.2", "0.11.0", "leave it out"),
    "--multi-step-stream-outputs": _gone("0.9.2", "0.11.0", "leave it out"),
    "--scheduler-delay-factor": _gone("0.9.2", "0.11.0", "leave it out"),
    "--preemption-mode": _gone("0.9.2", "0.11.0", "leave it out"),
    "--disable-async-output-proc": _gone("0.9.2", "0.11.0", "leave it out"),
    "--device": _gone("0.9.2", "0.11.0", "leave it out"),
    "--max-seq-len-to-capture": _gone("0.9.2", "0.11.0", "leave it out: the operator sizes the CUDA graphs"),
    "--enable-prompt-adapter": _gone("0.9.2", "0.11.0", "leave it out"),
    "--long-lora-scaling-factors": _gone("0.9.2", "0.11.0", "leave it out"),
    "--enable-reasoning": _gone("0.9.2", "0.11.0", "use --reasoning-parser alone", first="0.8.5"),
    "--tokenizer-pool-size": _gone("0.9.2", "0.11.0", "leave it out"),
    "--num-lookahead-slots": _gone("0.11.0", "0.13.0", "leave it out: the engine counts them itself"),
    "--guided-decoding-backend": _gone("0.11.0", "0.13.0", "set spec.engine.structuredOutputBackend"),
    "--rope-scaling": _gone("0.11.0", "0.13.0", "use --hf-overrides"),
    "--rope-theta": _gone("0.11.0", "0.13.0", "use --hf-overrides"),
    "--task": _gone("0.11.0", "0.13.0", "use --runner", first="0.8.5"),
    "--disable-mm-preprocessor-cache": _gone("0.11.0", "0.13.0", "use --mm-processor-cache-gb 0", first="0.8.5"),
    "--override-pooler-config": _gone("0.11.0", "0.13.0", "use --pooler-config", first="0.8.5"),
    "--lora-extra-vocab-size": _gone("0.11.0", "0.13.0", "leave it out"),
    "--enable-lora-bias": _gone("0.11.0", "0.13.0", "leave it out", first="0.8.5"),
    "--swap-space": _gone("0.13.0", "0.18.1", "leave it out, or use --kv-offloading-size"),
    "--disable-log-requests": _gone("0.13.0", "0.18.1", "leave it out: requests are logged only on demand"),
    "--logits-processor-pattern": _gone("0.13.0", "0.18.1", "use --logits-processors", first="0.8.5"),
    "--disable-frontend-multiprocessing": _gone("0.18.1", "0.20.2", "leave it out"),
    "--calculate-kv-scales": _gone("0.24.0", "0.29.0", "leave it out", first="0.8.5"),
    "--max-num-partial-prefills": _gone("0.24.0", "0.29.0", "leave it out", first="0.8.5"),
    "--max-long-partial-prefills": _gone("0.24.0", "0.29.0", "leave it out", first="0.8.5"),
    "--max-num-queued-reqs": _new("0.24.0", "0.29.0", _UPDATE),
    "--max-num-queued-tokens": _new("0.24.0", "0.29.0", _UPDATE),
    "--structured-outputs-config": _new("0.9.2", "0.11.0", "use --guided-decoding-backend"),
    "--runner": _new("0.9.2", "0.11.0", "use --task"),
    "--enable-log-requests": _new("0.9.2", "0.11.0", "leave it out: those versions log requests"),
    "--kv-cache-memory-bytes": _new("0.9.2", "0.11.0", _UPDATE),
    "--async-scheduling": _new("0.9.2", "0.11.0", _UPDATE),
    "--kv-transfer-config": _new("0.6.3", "0.8.5", _UPDATE),
    "--hf-overrides": _new("0.6.3", "0.8.5", _UPDATE),
    "--reasoning-parser": _new("0.6.3", "0.8.5", _UPDATE),
    "--device-ids": _new("0.20.2", "0.24.0", _UPDATE),
}
"""By its full name: where it is known to be, and what to do where it is not."""


def flag_name(argument: str) -> str | None:
    """The full name that an argument spells, with dashes and without value and key; None for a value."""
    if not argument.startswith("--"):
        return None
    return argument.split("=", 1)[0].split(".", 1)[0].removesuffix("+").replace("_", "-")
