"""The estimate of GPU memory, and what admission makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core.series import Missing
from outrider.engine import memory
from outrider.engine.admission import admit, examine
from outrider.engine.config import Drafter
from outrider.engine.memory import GIB, Estimate
from outrider.engine.model_facts import PairFacts, read
from outrider.errors import InvalidSpec
from tests.unit.engine.builders import LLAMA_8B, config, model, pair

HEAD: dict[str, Any] = {"num_hidden_layers": 1}
MLA: dict[str, Any] = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61}
SMALL = {"max_length": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 2048}


def estimate(facts: PairFacts, **changes: Any) -> Estimate:
    found = memory.estimate(config(gpu_memory_bytes=79 * GIB, **changes), facts)
    assert isinstance(found, Estimate)
    return found


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        pytest.param({}, 8.03e9, id="Llama 3.1 8B"),
        pytest.param(
            {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
            70.6e9,
            id="Llama 3.1 70B",
        ),
        pytest.param({"vocab_size": 32000, "num_local_experts": 8}, 46.7e9, id="Mixtral 8x7B"),
        pytest.param(
            {
                "vocab_size": 151936,
                "hidden_size": 896,
                "intermediate_size": 4864,
                "num_hidden_layers": 24,
                "num_attention_heads": 14,
                "num_key_value_heads": 2,
                "tie_word_embeddings": True,
            },
            0.494e9,
            id="Qwen2.5 0.5B, with tied embeddings",
        ),
        pytest.param(
            {
                "vocab_size": 151936,
                "moe_intermediate_size": 1536,
                "num_experts": 128,
                "num_hidden_layers": 94,
                "num_attention_heads": 64,
                "num_key_value_heads": 4,
                "head_dim": 128,
            },
            235e9,
            id="Qwen3 235B A22B",
        ),
    ],
)
def test_parameters_agree_with_the_published_number(changes: dict[str, Any], published: float) -> None:
    assert memory.parameters(model(**changes)) == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize("without", ["vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"])
def test_parameters_are_not_guessed(without: str) -> None:
    assert memory.parameters(model(**{without: None})) is None


def test_latent_attention_has_a_shape_of_its_own() -> None:
    assert memory.parameters(model(**MLA)) is None


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8),
        ("Qwen/Qwen2.5-0.5B", 0.5),
        ("Qwen/Qwen3-235B-A22B", 235),
        ("mistralai/Mixtral-8x7B-v0.1", 56),
        ("org/model-70b-awq", 70),
        ("org7B/gpt2", None),
        ("org/fp8b2", None),
    ],
)
def test_a_size_in_the_name(name: str, billions: float | None) -> None:
    assert memory.parameters_by_name(name) == (None if billions is None else billions * 1e9)


@pytest.mark.parametrize(
    ("quantization", "facts", "gib"),
    [
        pytest.param(None, {}, 14.96, id="16 bits by config.json"),
        pytest.param("fp8", {}, 8.46, id="quantised while loading, embeddings kept"),
        pytest.param(None, {"quantization_config": {"quant_method": "awq", "bits": 4}}, 5.41, id="stored in 4 bits"),
        pytest.param(
            None,
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 8}}},
                }
            },
            8.46,
            id="stored in groups of 8 bits",
        ),
    ],
)
def test_weights_by_their_bits(quantization: str | None, facts: dict[str, Any], gib: float) -> None:
    weights = memory.weights_of("org/target", quantization, model(**facts))
    assert not isinstance(weights, Missing)
    assert weights.total_bytes / GIB == pytest.approx(gib, abs=0.01)
    assert weights.sure == memory.FROM_CONFIG


def test_the_size_of_the_files_beats_all_arithmetic() -> None:
    stored = memory.weights_of("org/9B", None, read(LLAMA_8B, weights_bytes=20 * 2**30))
    loaded = memory.weights_of("org/9B", "fp8", read(LLAMA_8B, weights_bytes=20 * 2**30))
    assert not isinstance(stored, Missing)
    assert not isinstance(loaded, Missing)
    assert (stored.total_bytes, loaded.total_bytes) == (20 * GIB, 10 * GIB)
    assert stored.sure == 1.0


def test_without_files_and_numbers_the_name_speaks_and_without_a_size_nobody() -> None:
    named = memory.weights_of("org/target-8B", None, None)
    assert not isinstance(named, Missing)
    assert named.total_bytes == 16e9
    assert named.sure == pytest.approx(memory.FROM_NAME * 4.25 / 16)
    unknown = memory.weights_of("org/target", None, None)
    assert isinstance(unknown, Missing)
    assert "says how large org/target is" in str(unknown)


@pytest.mark.parametrize(
    ("facts", "changes", "expected"),
    [
        pytest.param(pair(), {}, 131072, id="32 layers x 8 heads x 128 x 2 x 2 bytes"),
        pytest.param(pair(), {"kv_cache_dtype": "fp8"}, 65536, id="half in 8 bits"),
        pytest.param(pair(), {"kv_cache_dtype": "bfloat16"}, 131072, id="said outright"),
        pytest.param(pair(), {"kv_cache_dtype": "turboquant_4bit_nc"}, 32768, id="a quarter in few bits"),
        pytest.param(pair(), {"gpus": 4, "tensor_parallel_size": 4}, 32768, id="shared by four"),
        pytest.param(pair(), {"gpus": 16, "tensor_parallel_size": 16}, 16384, id="one head each at least"),
        pytest.param(pair(), {"gpus": 2, "pipeline_parallel_size": 2}, 65536, id="half the layers"),
        pytest.param(
            pair(MLA),
            {"gpus": 8, "tensor_parallel_size": 8, "model": "org/671B"},
            61 * 576 * 2,
            id="latent, whole on each",
        ),
        pytest.param(pair({}, HEAD), {}, 131072 + 4096, id="with the drafter's layer"),
        pytest.param(pair({}, HEAD), {"mode": "Off"}, 131072, id="no drafter without speculation"),
    ],
)
def test_kv_cache_of_a_token(facts: PairFacts, changes: dict[str, Any], expected: int) -> None:
    assert estimate(facts, **changes).kv_bytes_per_token == expected


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 5),
        ({"method": "dflash"}, 6),
        ({"method": "ngram", "drafter": None}, 0),
        ({"mode": "Off"}, 0),
    ],
)
def test_slots_for_drafts(changes: dict[str, Any], tokens: int) -> None:
    assert memory.lookahead_tokens(config(**changes)) == tokens


def test_the_parts_add_up_and_are_said() -> None:
    found = estimate(pair({}, HEAD))
    assert found.budget_bytes == pytest.approx(0.92 * 79 * GIB)
    assert found.drafter_bytes / GIB == pytest.approx(0.41, abs=0.01), "a head uses the embeddings of its model"
    assert found.room_bytes == pytest.approx(
        found.budget_bytes
        - found.weights_bytes
        - found.drafter_bytes
        - found.buffers_bytes
        - memory.CONTEXT_AND_GRAPHS_BYTES
    )
    words = found.words()
    assert words.startswith(
        "estimate for each GPU: weights 15.0 GiB (8.03 billion parameters by config.json at 16 bits)"
    )
    assert "of 72.7 GiB for the KV cache, about" in words


def test_a_drafter_on_one_gpu_is_whole_on_each() -> None:
    drafter = pair({}, {})
    four: dict[str, Any] = {"gpus": 4, "tensor_parallel_size": 4, "method": "draft_model"}
    shared = estimate(drafter, **four).drafter_bytes
    whole = estimate(drafter, **four, drafter=Drafter(model="d", tensor_parallel_size=1)).drafter_bytes
    assert whole == pytest.approx(4 * shared)


@pytest.mark.parametrize(
    ("changes", "facts", "words"),
    [
        ({}, pair(), "the memory of the GPUs is not known"),
        ({"gpu_memory_bytes": 80 * GIB}, PairFacts(), "how large org/target is"),
    ],
)
def test_what_an_estimate_lacks(changes: dict[str, Any], facts: PairFacts, words: str) -> None:
    found = memory.estimate(config(**changes), facts)
    assert isinstance(found, Missing)
    assert words in str(found)


def fit(gib: float, facts: PairFacts, **changes: Any) -> list[str]:
    engine = config(**SMALL | {"gpu_memory_bytes": gib * GIB} | changes)
    return [finding.severity for finding in examine(engine, facts) if finding.code == "MemoryFit"]


def test_weights_larger_than_a_gpu_are_refused_and_their_neighbour_is_not() -> None:
    # 14.96 GiB, sure to 97 %, against 92 % of the memory.
    assert fit(15.7, pair()) == ["error"]
    assert fit(16.2, pair(), max_length=64) == ["warning"]
    assert fit(20.0, pair()) == []
    assert fit(15.7, pair(), gpus=2, tensor_parallel_size=2) == []


def test_a_size_by_name_is_believed_less() -> None:
    named = PairFacts()
    # 7.45 GiB in eight bits, sure to 90 %, against 92 % of the memory.
    assert fit(7.2, named, model="org/8B", quantization="fp8") == ["error"]
    assert fit(7.4, named, model="org/8B", quantization="fp8") == ["warning"]


@pytest.mark.parametrize(
    ("name", "gib", "severities"),
    [
        pytest.param("org/Llama-70B-Instruct", 79, ["warning"], id="perhaps stored in four bits"),
        pytest.param("org/Llama-70B-Instruct", 22, ["error"], id="too large even so"),
        pytest.param("org/Llama-70B-Instruct-AWQ-INT4", 79, [], id="in four bits by its name"),
        pytest.param("org/Llama-70B-Instruct-AWQ-INT4", 22, ["error"], id="and too large"),
        pytest.param("org/Llama-70B-Instruct-FP8", 60, ["error"], id="in eight bits by its name"),
    ],
)
def test_weights_may_be_stored_in_fewer_bits_than_anybody_says(name: str, gib: float, severities: list[str]) -> None:
    assert fit(gib, PairFacts(), model=name) == severities


def test_a_context_that_no_cache_can_hold_is_refused_with_the_numbers() -> None:
    engine = config(gpu_memory_bytes=22 * GIB, max_num_seqs=8, max_num_batched_tokens=2048)
    with pytest.raises(InvalidSpec) as refusal:
        admit(engine, pair())
    assert refusal.value.reason == "MemoryFit"
    assert "one request of 131072 tokens needs 16.0 GiB of KV cache, and beside the weights there is 5.3 GiB" in (
        refusal.value.message
    )
    assert "lower it to 24576 or less" in refusal.value.message
    assert fit(22, pair(), max_length=24576) == []


def test_layers_with_a_window_keep_less_so_nothing_is_refused_for_the_context() -> None:
    assert fit(22, pair({"sliding_window": 4096}), max_length=None) == []
    assert fit(22, pair({"model_type": "jamba"}), max_length=None) == []


def test_little_room_for_each_request_is_a_doubt() -> None:
    engine = config(gpu_memory_bytes=22 * GIB, max_length=8192, max_num_seqs=64, max_num_batched_tokens=2048)
    said = [finding for finding in examine(engine, pair()) if finding.code == "MemoryFit"]
    assert [finding.severity for finding in said] == ["warning"]
    assert "spec.engine.maxNumSeqs is 64, and the KV cache has room for about" in said[0].message
    assert fit(22, pair(), max_length=8192, max_num_seqs=32) == []
