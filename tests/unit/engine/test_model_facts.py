"""What is read of a config.json, whatever family wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.series import Missing
from outrider.engine.model_facts import read
from tests.unit.engine.builders import LLAMA_8B


def test_a_dense_model() -> None:
    facts = read(LLAMA_8B)
    assert (facts.vocab_size, facts.attention_heads, facts.kv_heads, facts.layers) == (128256, 32, 8, 32)
    assert (facts.head_dim, facts.hidden_size, facts.max_positions) == (128, 4096, 131072)
    assert (facts.model_type, facts.quantization, facts.experts) == ("llama", None, 0)
    assert isinstance(facts.n_predict, Missing)
    assert not any((facts.mrope, facts.mamba, facts.remote_code, facts.speculators))


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        pytest.param({"text_config": {"vocab_size": 7}}, "vocab_size", 7, id="a language model inside"),
        pytest.param({"thinker_config": {"text_config": {"num_hidden_layers": 9}}}, "layers", 9, id="two levels down"),
        pytest.param({"n_head": 16}, "attention_heads", 16, id="an old name for heads"),
        pytest.param({"num_attention_heads": 16}, "kv_heads", 16, id="KV heads are heads unless said"),
        pytest.param({"n_head_kv": 4, "n_head": 8}, "kv_heads", 4, id="another name for KV heads"),
        pytest.param({"hidden_size": 64, "num_attention_heads": 4}, "head_dim", 16, id="a head is a share"),
        pytest.param(
            {"head_dim": 128, "hidden_size": 64, "num_attention_heads": 4}, "head_dim", 128, id="its own size"
        ),
        pytest.param({"n_routed_experts": 256}, "experts", 256, id="experts by their name"),
        pytest.param({"num_nextn_predict_layers": 1}, "n_predict", 1, id="layers that predict"),
        pytest.param({"text_config": {"mtp_num_hidden_layers": 2}}, "n_predict", 2, id="by another name, inside"),
        pytest.param({"quantization_config": {"quant_method": "AWQ", "bits": 4}}, "quantization", "awq", id="stored"),
        pytest.param({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantization_bits", 4, id="bits"),
        pytest.param({"rope_scaling": {"mrope_section": [1, 2]}}, "mrope", True, id="positions of dimensions"),
        pytest.param({"rope_scaling": {"type": "yarn"}}, "mrope", False, id="positions that are scaled"),
        pytest.param({"model_type": "falcon_h1"}, "mamba", True, id="a hybrid"),
        pytest.param(
            {"transformer_layer_config": {"vocab_size": 5}, "speculators_config": {}}, "vocab_size", 5, id="speculators"
        ),
        pytest.param({"architectures": ["A"]}, "architectures", ("A",), id="architectures"),
    ],
)
def test_families_name_things_differently(document: dict[str, Any], field: str, expected: object) -> None:
    assert getattr(read(document), field) == expected


@pytest.mark.parametrize("value", [None, "32", 0, -1, True, 3.5, [32], {}])
def test_what_is_no_positive_whole_number_is_missing(value: object) -> None:
    found = read(LLAMA_8B | {"num_hidden_layers": value}).layers
    assert isinstance(found, Missing)
    assert "num_hidden_layers" in str(found)


def test_the_size_of_the_weights_is_known_only_when_given() -> None:
    assert isinstance(read({}).weights_bytes, Missing)
    assert read({}, weights_bytes=16_000).weights_bytes == 16_000


@given(
    st.dictionaries(
        st.sampled_from([*LLAMA_8B, "text_config", "rope_scaling", "quantization_config", "model_type"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=4), st.lists(st.none(), max_size=2), st.just({})),
    )
)
def test_nothing_in_a_document_breaks_the_reading(document: dict[str, Any]) -> None:
    read(document)
