"""Every rule that needs no model files: one engine that is just refused, and its neighbour that is not."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.engine.admission import CHECKS, admit, examine
from outrider.engine.config import (
    Drafter,
    KvTransfer,
    Lora,
    NgramOptions,
    RejectionSampling,
    SuffixOptions,
)
from outrider.errors import InvalidSpec
from tests.unit.engine.builders import config, rows

NGRAM: dict[str, Any] = {"method": "ngram", "drafter": None}
DRAFT_MODEL: dict[str, Any] = {"method": "draft_model"}
LORA = Lora(max_adapters=4)
PRODUCER = KvTransfer(connector="NixlConnector", role="producer")


def two_gpus(**changes: Any) -> dict[str, Any]:
    return {"gpus": 2, "tensor_parallel_size": 2} | changes


REFUSED: list[Any] = [
    # words
    ("QuantizationUnknown", {"quantization": "awq4"}, {"quantization": "awq"}, "vLLM 0.33.0 does not know"),
    (
        "QuantizationUnknown",
        {"drafter": Drafter(model="org/draft", quantization="awq4")},
        {"drafter": Drafter(model="org/draft", quantization="awq4"), "mode": "Off"},
        "spec.speculation.draft.quantization is awq4",
    ),
    ("KvCacheDtype", {"kv_cache_dtype": "fp7"}, {"kv_cache_dtype": "fp8"}, "choose among auto, bfloat16"),
    (
        "KvCacheDtype",
        {"kv_cache_dtype": "fp7"},
        {"kv_cache_dtype": "fp7", "version": "0.29.0"},
        "kvCacheDtype is fp7, which the command line of vLLM 0.33.0 refuses",
    ),
    # arguments
    (
        "ArgumentRefused",
        {"extra_args": ("--device-mem=0.5",)},
        {"extra_args": ("--device-ids", "0")},
        "is set from spec.engine.gpuMemoryUtilizationPercent",
    ),
    ("ArgumentRefused", {"extra_args": ("--ssl-keyfile=/k",)}, {"extra_args": ("--seed=1",)}, "speak http"),
    ("ArgumentRefused", {"extra_args": ("--nnodes", "2")}, {"extra_args": ("--enable-expert-parallel",)}, "one pod"),
    ("ArgumentRefused", {"extra_args": ("-O0",)}, {"extra_args": ("--attention-backend=X",)}, "CUDA graphs"),
    (
        "ArgumentRefused",
        {"extra_args": ("--trust-remote",)},
        {"trust_remote_code": True},
        "is set from spec.security.trustRemoteCode",
    ),
    (
        "ArgumentSetTwice",
        {"extra_args": ("--enable-lora",), "lora": LORA},
        {"extra_args": ("--enable-lora",)},
        "extraArgs[0]: --enable-lora is set in two places, here and by spec.engine.lora",
    ),
    (
        "ArgumentSetTwice",
        {"extra_args": ("--seed", "1", "--no-enable_prefix-caching"), "prefix_caching": True},
        {"prefix_caching": True},
        "extraArgs[2]: --no-enable-prefix-caching is set in two places",
    ),
    (
        "ArgumentSetTwice",
        {"extra_args": ("--max-num-queued-reqs=9",), "max_queued_requests": 9},
        {"extra_args": ("--max-num-queued-tokens=9",), "max_queued_requests": 9},
        "spec.engine.maxQueuedRequests",
    ),
    (
        "ArgumentNotInVersion",
        {"extra_args": ("--swap_space=4",)},
        {"extra_args": ("--swap_space=4",), "version": "0.13.0"},
        "vLLM 0.33.0 has no --swap-space, which is there 0.6.3 to 0.13.0, and would not start",
    ),
    (
        "ArgumentNotInVersion",
        {"extra_args": ("--max-num-queued-reqs=9",), "version": "0.24.0"},
        {"extra_args": ("--max-num-queued-reqs=9",), "version": "0.29.0"},
        "which is there from 0.29.0",
    ),
    ("VariableRefused", {"extra_env": ("HF_HOME",)}, {"extra_env": ("VLLM_LOGGING_LEVEL",)}, "HF_HOME is set by"),
    # parallelism
    (
        "GpusNotUsed",
        {"gpus": 4, "tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2},
        {"gpus": 8, "tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2},
        "spec.resources.gpus is 4, and spec.parallelism asks for tensor 2 x pipeline 2 x data 2 = 8",
    ),
    (
        "DrafterParallelism",
        {"gpus": 4, "tensor_parallel_size": 4, "drafter": Drafter(model="d", tensor_parallel_size=2)},
        {"gpus": 4, "tensor_parallel_size": 4, "drafter": Drafter(model="d", tensor_parallel_size=1)},
        "it must be 1 or 4",
    ),
    (
        "DrafterParallelism",
        two_gpus(**DRAFT_MODEL, heterogeneous_vocab=True, drafter=Drafter(model="d", tensor_parallel_size=1)),
        two_gpus(**DRAFT_MODEL, heterogeneous_vocab=True, drafter=Drafter(model="d", tensor_parallel_size=2)),
        "takes only equal sizes",
    ),
    (
        "PipelineWithSpeculation",
        {"version": "0.29.0", "gpus": 2, "pipeline_parallel_size": 2, "method": "mtp", "drafter": None},
        {"version": "0.33.0", "gpus": 2, "pipeline_parallel_size": 2, "method": "mtp", "drafter": None},
        "pipeline > 1 with speculation needs vLLM 0.30, and this is 0.29.0",
    ),
    (
        "PipelineWithSpeculation",
        {"version": "0.29.0", "gpus": 2, "pipeline_parallel_size": 2},
        {"version": "0.29.0", "gpus": 2, "pipeline_parallel_size": 2, "mode": "Off"},
        "tuning.mode Off",
    ),
    # methods
    (
        "MethodNotInVersion",
        DRAFT_MODEL | {"version": "0.11.0"},
        DRAFT_MODEL | {"version": "0.20.2"},
        "vLLM 0.11.0 has no draft_model: choose among eagle, eagle3, mtp, ngram, or",
    ),
    (
        "MethodNotInVersion",
        {"method": "medusa"},
        {"method": "medusa", "version": "0.32.0"},
        "vLLM 0.33.0 has no medusa",
    ),
    (
        "FeatureNotInVersion",
        DRAFT_MODEL | {"version": "0.20.2", "heterogeneous_vocab": True},
        DRAFT_MODEL | {"version": "0.33.0", "heterogeneous_vocab": True},
        "spec.speculation.heterogeneousVocab: vLLM 0.20.2 does not know it (use_heterogeneous_vocab), which is there"
        " from 0.29.0",
    ),
    (
        "FeatureNotInVersion",
        {"version": "0.24.0", "max_queued_requests": 8},
        {"version": "0.29.0", "max_queued_requests": 8},
        "spec.engine.maxQueuedRequests",
    ),
    (
        "FeatureNotInVersion",
        {"version": "0.32.0", "draft_head_quantization": "fp8"},
        {"version": "0.33.0", "draft_head_quantization": "fp8"},
        "draft_lm_head_quantization",
    ),
    (
        "FeatureNotInVersion",
        {"version": "0.32.0", "rejection_sampling": RejectionSampling(method="fly")},
        {"version": "0.32.0", "rejection_sampling": RejectionSampling(method="block")},
        "spec.speculation.rejectionSampling.method",
    ),
    (
        "FeatureNotInVersion",
        {"version": "0.6.3", "method": "eagle"},
        {"version": "0.8.5", "method": "eagle"},
        "--speculative-config",
    ),
    (
        "OptionOfAnotherMethod",
        {"heterogeneous_vocab": True},
        DRAFT_MODEL | {"heterogeneous_vocab": True},
        "is only for method draft_model, and the method is eagle3",
    ),
    (
        "OptionOfAnotherMethod",
        {"draft_head_quantization": "fp8", "method": "dflash"},
        {"draft_head_quantization": "fp8", "method": "eagle"},
        "is only for method eagle or eagle3 or mtp",
    ),
    ("OptionOfAnotherMethod", {"ngram": NgramOptions()}, NGRAM | {"ngram": NgramOptions()}, "only for method ngram"),
    (
        "OptionOfAnotherMethod",
        {"suffix": SuffixOptions()},
        {"suffix": SuffixOptions(), "method": "suffix", "drafter": None},
        "only for method suffix",
    ),
    (
        "OptionOfAnotherMethod",
        {"adaptive_verification": True},
        {"adaptive_verification": True, "method": "dspark"},
        "only for method dspark",
    ),
    # settings
    (
        "AdaptersWithSpeculation",
        NGRAM | {"version": "0.6.3", "extra_args": ("--enable-lora",)},
        NGRAM | {"version": "0.11.0", "extra_args": ("--enable-lora",)},
        "vLLM 0.6.3 crashes on adapters under speculation",
    ),
    (
        "AdaptersWithSpeculation",
        {"lora": LORA, "max_num_seqs": 256, "max_num_batched_tokens": 1535},
        {"lora": LORA, "max_num_seqs": 256, "max_num_batched_tokens": 1536},
        "maxNumSeqs 256 x (maxSpeculativeTokens 5 + 1) = 1536 or more, and it is 1535",
    ),
    (
        "ProducerWithSpeculation",
        {"kv_transfer": PRODUCER},
        {"kv_transfer": PRODUCER, "mode": "Off"},
        "a prefill-only pod gains nothing",
    ),
    (
        "FlyVerification",
        {"rejection_sampling": RejectionSampling(method="fly"), "max_speculative_tokens": 1},
        {"rejection_sampling": RejectionSampling(method="fly"), "max_speculative_tokens": 2},
        "needs maxSpeculativeTokens of 2 or more, and it is 1",
    ),
    (
        "FlyVerification",
        {"rejection_sampling": RejectionSampling(method="fly", fly_window_size=5)},
        {"rejection_sampling": RejectionSampling(method="fly", fly_window_size=4)},
        "flyWindowSize is 5: it must be below maxSpeculativeTokens, 5",
    ),
    (
        "AdaptiveVerification",
        {"method": "dspark", "adaptive_verification": True, "lora": LORA},
        {"method": "dspark", "lora": LORA},
        "does not go with adapters",
    ),
    (
        "AdaptiveVerification",
        {"method": "dspark", "adaptive_verification": True, "gpus": 2, "pipeline_parallel_size": 2},
        two_gpus(method="dspark", adaptive_verification=True),
        "several pipeline stages",
    ),
    (
        "AdaptiveVerification",
        {"method": "dspark", "adaptive_verification": True, "extra_args": ("--enforce-eager",)},
        {"method": "dspark", "extra_args": ("--enforce-eager",)},
        "needs CUDA graphs",
    ),
    (
        "DraftSampling",
        DRAFT_MODEL | {"heterogeneous_vocab": True, "draft_sampling": "probabilistic"},
        DRAFT_MODEL | {"heterogeneous_vocab": True, "draft_sampling": "greedy"},
        "does not go with heterogeneousVocab",
    ),
    (
        "DraftSampling",
        NGRAM | {"draft_sampling": "probabilistic"},
        {"draft_sampling": "probabilistic"},
        "has no draft model to sample from",
    ),
    (
        "AsyncScheduling",
        {"method": "suffix", "drafter": None, "extra_args": ("--async-scheduling",)},
        NGRAM | {"extra_args": ("--async-scheduling",)},
        "refuses --async-scheduling with method suffix",
    ),
    (
        "BatchedTokens",
        {"max_num_batched_tokens": 6, "max_num_seqs": 1},
        {"max_num_batched_tokens": 7, "max_num_seqs": 1},
        "leaves no token beside the 5 drafts",
    ),
    (
        "DrafterLength",
        {"max_length": 4096, "drafter": Drafter(model="d", max_length=4097)},
        {"max_length": 4096, "drafter": Drafter(model="d", max_length=4096)},
        "is 4097, above spec.model.maxLength 4096",
    ),
    (
        "GgufWithDrafter",
        DRAFT_MODEL | {"quantization": "gguf", "version": "0.20.2"},
        NGRAM | {"quantization": "gguf", "version": "0.20.2"},
        "not supported with a separate draft",
    ),
    (
        "GgufWithDrafter",
        NGRAM | {"quantization": "gguf"},
        NGRAM | {"quantization": "awq"},
        "left it to a plugin",
    ),
    # schedules
    (
        "OneSpeculativeTokens",
        two_gpus(tensor_parallel_size=1, data_parallel_size=2, mode="Fixed", rows=rows((1, 8, 3), (9, 64, 1))),
        {"mode": "Fixed", "rows": rows((1, 8, 3), (9, 64, 1))},
        "data ranks",
    ),
    (
        "NoCommonGraphs",
        {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 4), (65, 256, 6)), "max_speculative_tokens": 6},
        {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 2)), "max_speculative_tokens": 6},
        "no CUDA graph sizes",
    ),
    (
        "ScheduleInvalid",
        {"mode": "Fixed", "rows": rows((1, 8, 5), (8, 64, 3))},
        {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 3))},
        "overlap",
    ),
]


@pytest.mark.parametrize(
    ("code", "refused", "neighbour", "words"),
    [pytest.param(*case, id=f"{case[0]}-{position}") for position, case in enumerate(REFUSED)],
)
def test_just_refused_and_just_not(code: str, refused: dict[str, Any], neighbour: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        admit(config(**refused))
    findings = [finding for finding in examine(config(**refused)) if finding.severity == "error"]
    assert code in {finding.code for finding in findings}
    assert any(finding.code == code and words in finding.message for finding in findings), findings
    assert words in refusal.value.message
    admit(config(**neighbour))


DOUBTED: list[Any] = [
    ("ArgumentNotInVersion", {"extra_args": ("--swap-space=4",), "version": "0.15.0"}, {}, "nobody looked"),
    ("EagerEngine", {"extra_args": ("--enforce-eager",)}, {}, "no CUDA graphs"),
    (
        "PipelineWithSpeculation",
        {"gpus": 2, "pipeline_parallel_size": 2},
        {"gpus": 2, "pipeline_parallel_size": 2, "mode": "Off"},
        "several pipeline stages",
    ),
    (
        "PipelineWithSpeculation",
        NGRAM | {"version": "0.29.0", "gpus": 2, "pipeline_parallel_size": 2},
        NGRAM | {"version": "0.29.0"},
        "several pipeline stages",
    ),
    (
        "TableIgnored",
        {"gpus": 2, "data_parallel_size": 2, "method": "mtp", "drafter": None, "max_speculative_tokens": 3},
        {"gpus": 2, "tensor_parallel_size": 2, "method": "mtp", "drafter": None},
        "table ignored with data > 1, K fixed at 3",
    ),
    ("VersionNotStudied", {"version": None}, {}, "the version is unknown"),
    ("VersionNotStudied", {"version": "0.34.0"}, {"version": "0.33.9"}, "later than the versions"),
    ("VersionNotStudied", {"version": "0.32.0"}, {"version": "0.32.0", "mode": "Off"}, "whose runner was studied"),
    ("MethodNotInVersion", DRAFT_MODEL | {"version": "0.15.0"}, DRAFT_MODEL | {"version": "0.18.1"}, "nobody looked"),
    (
        "FeatureNotInVersion",
        {"version": "0.27.0", "max_queued_tokens": 9},
        {"version": "0.29.0", "max_queued_tokens": 9},
        "nobody looked whether vLLM 0.27.0 knows it",
    ),
    (
        "OldEngine",
        DRAFT_MODEL | {"version": "0.9.2"},
        DRAFT_MODEL | {"version": "0.18.1"},
        "runs draft_model on the old engine: other metric names",
    ),
    ("NoDrain", {"version": "0.17.1"}, {"version": "0.18.0"}, "no drain in this version"),
    ("SuffixPackage", {"method": "suffix", "drafter": None}, NGRAM, "arctic-inference"),
    (
        "AdaptersWithSpeculation",
        NGRAM | {"extra_args": ("--enable-lora",)},
        NGRAM | {"extra_args": ("--enable-lora",), "mode": "Off"},
        "the draft is not adapted",
    ),
    (
        "AdaptersWithSpeculation",
        NGRAM | {"extra_args": ("--enable-lora",), "version": "0.9.2"},
        NGRAM | {"version": "0.9.2"},
        "acceptance may differ",
    ),
    ("FlyVerification", {"rejection_sampling": RejectionSampling(method="fly")}, {}, "answers may get worse"),
    (
        "BatchedTokens",
        {"max_num_seqs": 256, "max_num_batched_tokens": 1535},
        {"max_num_seqs": 256, "max_num_batched_tokens": 1536},
        "one step of 255 requests, below maxNumSeqs 256",
    ),
    (
        "SharedMemory",
        {"memory_bytes": 4 * 2**30, "shared_memory_bytes": 5 * 2**30},
        {"memory_bytes": 4 * 2**30, "shared_memory_bytes": 4 * 2**30},
        "5Gi, is more than memory, 4Gi",
    ),
    (
        "SharedMemory",
        {"memory_bytes": 2**20, "shared_memory_bytes": 2**21},
        {"memory_bytes": 2**20, "shared_memory_bytes": 2**20},
        "is more than memory",
    ),
    (
        "ScheduleHoles",
        {"mode": "Fixed", "rows": rows((1, 16, 3), (64, 128, 2))},
        {"mode": "Fixed", "rows": rows((1, 16, 3), (17, 128, 2))},
        "no row for batch 17-63",
    ),
    ("SpeculativeTokensFixed", {"version": "0.23.0"}, {"version": "0.24.0"}, "vLLM 0.23.0 has no table"),
    (
        "StartWithoutGraphs",
        {"initial_speculative_tokens": 4},
        {"initial_speculative_tokens": 5},
        "so 3 is used; choose among 0, 1, 2, 3, 5",
    ),
    (
        "SmallBatchesPadded",
        {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 4))},
        {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 2))},
        "in steps of 30 tokens",
    ),
]


@pytest.mark.parametrize(
    ("code", "doubted", "neighbour", "words"),
    [pytest.param(*case, id=f"{case[0]}-{position}") for position, case in enumerate(DOUBTED)],
)
def test_just_doubted_and_just_not(code: str, doubted: dict[str, Any], neighbour: dict[str, Any], words: str) -> None:
    said = [finding.message for finding in examine(config(**doubted)) if finding.code == code]
    assert any(words in message for message in said), said
    assert any(words in warning for warning in admit(config(**doubted)).warnings)
    assert not [finding for finding in examine(config(**neighbour)) if finding.code == code]


def test_the_smallest_engine_is_above_doubt() -> None:
    assert list(examine(config())) == []


def test_every_check_says_why_what_to_do_and_where_it_can_be_read() -> None:
    assert len({check.code for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.why.endswith(".")
        assert check.remedy.endswith(".")
        assert check.source
        assert all(field.startswith("spec.") for field in check.fields)


def test_the_first_fault_names_the_condition_and_all_are_in_the_message() -> None:
    engine = config(extra_env=("HF_HOME",), gpus=2, method="medusa")
    with pytest.raises(InvalidSpec) as refusal:
        admit(engine)
    faults = [finding for finding in examine(engine) if finding.severity == "error"]
    assert refusal.value.reason == faults[0].code == "VariableRefused"
    assert refusal.value.message == "; ".join(fault.message for fault in faults)
    assert {fault.code for fault in faults} == {"VariableRefused", "GpusNotUsed", "MethodNotInVersion"}


def test_a_schedule_is_not_judged_while_something_else_is_wrong() -> None:
    engine = config(mode="Fixed", rows=rows((1, 8, 5), (8, 64, 3)), gpus=2)
    assert {finding.code for finding in examine(engine)} == {"GpusNotUsed"}
