"""Rules of model and drafter, by what their config.json says."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.engine.admission import CHECKS, admit, examine
from outrider.engine.config import Drafter
from outrider.engine.model_facts import PairFacts
from outrider.errors import InvalidSpec
from tests.unit.engine.builders import config, model, pair

DRAFT_MODEL: dict[str, Any] = {"method": "draft_model"}
MTP: dict[str, Any] = {"method": "mtp", "drafter": None, "max_speculative_tokens": 2}
PADDED = {"vocab_size": 152064}
PLAIN = {"vocab_size": 151936}
MROPE = {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
FOUR: dict[str, Any] = {"gpus": 4, "tensor_parallel_size": 4}


def four(**drafter: Any) -> dict[str, Any]:
    return FOUR | {"drafter": Drafter(model="org/draft", **drafter)}


REFUSED: list[Any] = [
    (
        "VocabularyMismatch",
        DRAFT_MODEL,
        pair(PADDED, PLAIN),
        DRAFT_MODEL,
        pair(PADDED, PADDED),
        "has 151936 entries and the model's 152064",
    ),
    (
        "VocabularyMismatch",
        DRAFT_MODEL,
        pair(PADDED, PLAIN),
        DRAFT_MODEL | {"heterogeneous_vocab": True},
        pair(PADDED, PLAIN),
        "or set spec.speculation.heterogeneousVocab",
    ),
    ("VocabularyMismatch", DRAFT_MODEL, pair(PADDED, PLAIN), {}, pair(PADDED, PLAIN), "choose a drafter"),
    (
        "HeadsNotDivisible",
        {"gpus": 3, "tensor_parallel_size": 3},
        pair({"num_attention_heads": 64}),
        FOUR,
        pair({"num_attention_heads": 64}),
        "the 64 attention heads of the model are not divisible by 3 GPUs",
    ),
    (
        "HeadsNotDivisible",
        four(),
        pair({"num_attention_heads": 64}, {"num_attention_heads": 14, "num_key_value_heads": 2}),
        four(tensor_parallel_size=1),
        pair({"num_attention_heads": 64}, {"num_attention_heads": 14, "num_key_value_heads": 2}),
        "the 14 attention heads of the drafter are not divisible by 4 GPUs; set"
        " spec.speculation.draft.tensorParallelSize to 1",
    ),
    (
        "HeadsNotDivisible",
        FOUR,
        pair({"num_attention_heads": 48, "num_key_value_heads": 6}),
        FOUR,
        pair({"num_attention_heads": 48, "num_key_value_heads": 2}),
        "the 6 KV heads of the model",
    ),
    (
        "PredictionModules",
        MTP | {"max_speculative_tokens": 3},
        pair({"num_nextn_predict_layers": 2}),
        MTP | {"max_speculative_tokens": 4},
        pair({"num_nextn_predict_layers": 2}),
        "beyond 2 it must be a multiple of 2, such as 2 or 4",
    ),
    (
        "PredictionModules",
        MTP | {"max_speculative_tokens": 3},
        pair({"mtp_num_hidden_layers": 2}),
        MTP | {"max_speculative_tokens": 3},
        pair({"mtp_num_hidden_layers": 4}),
        "is 3, and the model has 2 layers",
    ),
    (
        "PredictionOfFamily",
        MTP,
        pair({"model_type": "deepseek_v41", "num_nextn_predict_layers": 1}),
        MTP,
        pair({"model_type": "deepseek_v4", "num_nextn_predict_layers": 1}),
        "stages for method dspark",
    ),
    (
        "PredictionOfFamily",
        MTP,
        pair({"architectures": ["ParseForCausalLM"], "num_nextn_predict_layers": 1}),
        MTP | {"max_speculative_tokens": 1},
        pair({"architectures": ["ParseForCausalLM"], "num_nextn_predict_layers": 1}),
        "set it to 1",
    ),
    (
        "ContextLength",
        {"drafter": Drafter(model="d", max_length=2049)},
        pair({}, {"max_position_embeddings": 2048}),
        {"drafter": Drafter(model="d", max_length=2048)},
        pair({}, {"max_position_embeddings": 2048}),
        "is 2049 and the drafter has 2048 positions",
    ),
    (
        "MultiModalPositions",
        DRAFT_MODEL | {"heterogeneous_vocab": True},
        pair(MROPE, {}),
        DRAFT_MODEL,
        pair(MROPE, {}),
        "(M-RoPE)",
    ),
    (
        "DrafterAsModel",
        {},
        pair({"speculators_config": {"algorithm": "eagle3"}}),
        {},
        pair({}, {"speculators_config": {"algorithm": "eagle3"}}),
        "name the model that it was trained for",
    ),
]


@pytest.mark.parametrize(
    ("code", "refused", "facts", "neighbour", "neighbour_facts", "words"),
    [pytest.param(*case, id=f"{case[0]}-{position}") for position, case in enumerate(REFUSED)],
)
def test_just_refused_and_just_not(
    code: str,
    refused: dict[str, Any],
    facts: PairFacts,
    neighbour: dict[str, Any],
    neighbour_facts: PairFacts,
    words: str,
) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        admit(config(**refused), facts)
    assert refusal.value.reason == code
    assert words in refusal.value.message
    admit(config(**neighbour), neighbour_facts)
    if refused == neighbour:
        return
    admit(config(**refused | {"mode": "Off"}), PairFacts())  # nothing is refused of what is not known


DOUBTED: list[Any] = [
    (
        "DrafterOfAnotherModel",
        {"method": "eagle"},
        pair({}, {"hidden_size": 5120}),
        pair({}, {}),
        "hidden size is 5120",
    ),
    ("PredictionModules", MTP, pair(), pair({"num_nextn_predict_layers": 1}), "names no layers that predict"),
    (
        "ContextLength",
        {"max_length": 131073},
        pair(),
        pair({"max_position_embeddings": 131073}),
        "is 131073 and config.json gives the model 131072 positions",
    ),
    (
        "ContextLength",
        DRAFT_MODEL | {"max_length": 8192},
        pair({}, {"max_position_embeddings": 4096}),
        pair({}, {"max_position_embeddings": 8192}),
        "vLLM lowers the longest context to 4096",
    ),
    ("HybridWithTable", {}, pair({"model_type": "nemotron_h"}), pair({"model_type": "qwen3_next"}), "Mamba"),
    ("MultiModalPositions", {"version": "0.24.0"}, pair(MROPE), pair(), "wrong drafts were seen"),
    ("RemoteCode", {}, pair({"auto_map": {"AutoModel": "x.Y"}}), pair(), "spec.model.id: the repository brings code"),
    (
        "RemoteCode",
        {},
        pair({}, {"auto_map": {"AutoModel": "x.Y"}}),
        pair({}, {}),
        "spec.speculation.draft.id: the repository brings code",
    ),
    (
        "QuantizationDiffers",
        {"quantization": "fp8"},
        pair({"quantization_config": {"quant_method": "awq"}}),
        pair({"quantization_config": {"quant_method": "fp8"}}),
        "is fp8, and the weights are stored as awq",
    ),
    (
        "PipelineWithSpeculation",
        MTP | {"gpus": 2, "pipeline_parallel_size": 2},
        pair({"model_type": "glm4_moe", "num_nextn_predict_layers": 1}),
        pair({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}),
        "were shown to work for method mtp of deepseek_v3",
    ),
]


@pytest.mark.parametrize(
    ("code", "changes", "facts", "neighbour", "words"),
    [pytest.param(*case, id=f"{case[0]}-{position}") for position, case in enumerate(DOUBTED)],
)
def test_just_doubted_and_just_not(
    code: str, changes: dict[str, Any], facts: PairFacts, neighbour: PairFacts, words: str
) -> None:
    said = [finding for finding in examine(config(**changes), facts) if finding.code == code]
    assert [finding.severity for finding in said] == ["warning"]
    assert words in said[0].message
    assert not [finding for finding in examine(config(**changes), neighbour) if finding.code == code]


def test_the_newer_runner_knows_positions_of_several_dimensions() -> None:
    assert not [one for one in examine(config(), pair(MROPE)) if one.code == "MultiModalPositions"]


def test_code_of_the_repository_that_the_user_allows_is_no_doubt() -> None:
    facts = pair({"auto_map": {"AutoModel": "x.Y"}})
    assert not [one for one in examine(config(trust_remote_code=True), facts) if one.code == "RemoteCode"]


def test_a_pair_without_numbers_is_neither_refused_nor_doubted() -> None:
    empty = pair(dict.fromkeys(("vocab_size", "num_attention_heads", "hidden_size", "max_position_embeddings")), {})
    assert admit(config(**FOUR | DRAFT_MODEL), empty).warnings == ()


@pytest.mark.parametrize(
    ("code", "changes", "facts", "lacks"),
    [
        ("VocabularyMismatch", DRAFT_MODEL, PairFacts(), "the model's config.json is not known"),
        ("VocabularyMismatch", DRAFT_MODEL, pair(), "the drafter's config.json is not known"),
        ("VocabularyMismatch", DRAFT_MODEL, pair({}, {}), None),
        ("VocabularyMismatch", {}, PairFacts(), None),
        ("HeadsNotDivisible", FOUR, PairFacts(), "the model's config.json is not known"),
        ("HeadsNotDivisible", FOUR, PairFacts(target=model()), "the drafter's config.json is not known"),
        ("HeadsNotDivisible", {}, PairFacts(), None),
        ("PredictionModules", MTP, PairFacts(), "the model's config.json is not known"),
        ("PredictionModules", MTP, pair(), None),
        ("GpusNotUsed", {}, PairFacts(), None),
    ],
)
def test_a_check_says_what_it_lacks(code: str, changes: dict[str, Any], facts: PairFacts, lacks: str | None) -> None:
    (check,) = [check for check in CHECKS if check.code == code]
    assert check.lacks(config(**changes), facts) == lacks
