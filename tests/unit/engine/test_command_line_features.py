"""Flags that are rendered only for those who ask: parallelism, adapters, queue limits, options of a method."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.command_line import (
    engine_args,
    engine_env,
    escape,
    initial_schedule,
    speculative_tokens_values,
)
from outrider.engine.config import (
    Drafter,
    EngineConfig,
    KvTransfer,
    Lora,
    NgramOptions,
    RejectionSampling,
    SuffixOptions,
)
from tests.unit.engine.builders import EAGLE, config
from tests.unit.engine.kubernetes_expansion import expand

NASTY = ('org/it\'s a "draft" {x}', "/models/$(HOME)/d", "$$(HOME)", "a\\b", "$ünïcode", "$", "$(", "--x", "a=b,c", "")
texts = st.text() | st.text(alphabet="$()HOME{}\"'\\aé ") | st.sampled_from(NASTY)


def added(**changes: Any) -> list[str]:
    """The arguments that changes to the engine add, as the engine reads them."""
    before, after = engine_args(config()), engine_args(config(**changes))
    assert [argument for argument in after if argument in before] == before, "nothing else moves"
    return [expand(argument, {"HOME": "/root"}) for argument in after if argument not in before]


def speculation(**changes: Any) -> dict[str, Any]:
    """The value of ``--speculative-config`` as the engine reads it."""
    arguments = engine_args(config(**changes))
    argument = arguments[arguments.index("--speculative-config") + 1]
    found: dict[str, Any] = json.loads(expand(argument, {"HOME": "/root"}))
    return found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, "", id="nothing asked, nothing rendered"),
        pytest.param({"pipeline_parallel_size": 2}, "--pipeline-parallel-size 2", id="pipeline"),
        pytest.param({"prefix_caching": True}, "--enable-prefix-caching", id="prefix caching"),
        pytest.param({"prefix_caching": False}, "--no-enable-prefix-caching", id="no prefix caching"),
        pytest.param({"chunked_prefill": True}, "--enable-chunked-prefill", id="chunked prefill"),
        pytest.param({"chunked_prefill": False}, "--no-enable-chunked-prefill", id="no chunked prefill"),
        pytest.param({"lora": Lora()}, "--enable-lora", id="adapters, the rest left to the engine"),
        pytest.param(
            {"lora": Lora(max_adapters=4, max_rank=64, modules=(("sql", "org/sql"), ("a=b", "/x,y")))},
            "--enable-lora --max-loras 4 --max-lora-rank 64"
            ' --lora-modules {"name":"sql","path":"org/sql"} {"name":"a=b","path":"/x,y"}',
            id="adapters in full",
        ),
        pytest.param(
            {"structured_output_backend": "xgrammar"},
            '--structured-outputs-config {"backend":"xgrammar"}',
            id="structured output",
        ),
        pytest.param({"max_queued_requests": 100}, "--max-num-queued-reqs 100", id="queued requests"),
        pytest.param({"max_queued_tokens": 60_000}, "--max-num-queued-tokens 60000", id="queued tokens"),
        pytest.param(
            {"kv_transfer": KvTransfer(connector="NixlConnector", role="consumer")},
            '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_consumer"}',
            id="transfer",
        ),
        pytest.param(
            {
                "kv_transfer": KvTransfer(
                    connector="MultiConnector",
                    role="both",
                    load_failure_policy="recompute",
                    extra={"z": 1, "connectors": [{"b": 2, "a": "it's"}]},
                )
            },
            '--kv-transfer-config {"kv_connector":"MultiConnector","kv_role":"kv_both",'
            '"kv_load_failure_policy":"recompute",'
            '"kv_connector_extra_config":{"connectors":[{"a":"it\'s","b":2}],"z":1}}',
            id="transfer in full, keys in order at every depth",
        ),
        pytest.param({"trust_remote_code": True}, "--trust-remote-code", id="code of the model's repository"),
    ],
)
def test_flags_that_were_asked_for(changes: dict[str, Any], expected: str) -> None:
    assert " ".join(added(**changes)) == expected


def test_data_parallel_ranks_keep_one_k_and_get_no_table() -> None:
    engine = config(data_parallel_size=2)
    arguments = engine_args(engine)
    assert arguments[arguments.index("--data-parallel-size") + 1] == "2"
    assert "num_speculative_tokens_per_batch_size" not in speculation(data_parallel_size=2)
    assert speculative_tokens_values(engine) == (5,)
    assert str(initial_schedule(engine)) == "1-256:5"


def test_a_draft_model_with_other_tokens_runs_on_v1_with_one_k() -> None:
    changes = {"method": "draft_model", "heterogeneous_vocab": True}
    assert engine_env(config(**changes))["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert speculation(**changes)["use_heterogeneous_vocab"] is True
    assert "num_speculative_tokens_per_batch_size" not in speculation(**changes)
    assert engine_env(config(method="draft_model", heterogeneous_vocab=False))["VLLM_USE_V2_MODEL_RUNNER"] == "1"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"method": "ngram", "drafter": None, "ngram": NgramOptions(prompt_lookup_min=2, prompt_lookup_max=5)},
            {"prompt_lookup_min": 2, "prompt_lookup_max": 5},
            id="ngram",
        ),
        pytest.param(
            {"method": "ngram", "drafter": None, "ngram": NgramOptions(prompt_lookup_max=4)},
            {"prompt_lookup_max": 4},
            id="ngram with one bound",
        ),
        pytest.param(
            {
                "method": "suffix",
                "drafter": None,
                "suffix": SuffixOptions(
                    max_tree_depth=32, max_cached_requests=0, max_spec_factor=1.5, min_token_probability=0.05
                ),
            },
            {
                "suffix_decoding_max_tree_depth": 32,
                "suffix_decoding_max_cached_requests": 0,
                "suffix_decoding_max_spec_factor": 1.5,
                "suffix_decoding_min_token_prob": 0.05,
            },
            id="suffix, zero said outright",
        ),
        pytest.param(
            {"method": "dspark", "adaptive_verification": True},
            {"enable_adaptive_verification": True},
            id="adaptive verification",
        ),
        pytest.param(
            {"draft_sampling": "probabilistic", "draft_head_quantization": "fp8"},
            {"draft_sample_method": "probabilistic", "draft_lm_head_quantization": "fp8"},
            id="sampling and head of the drafter",
        ),
        pytest.param(
            {
                "rejection_sampling": RejectionSampling(
                    method="fly", fly_window_size=3, fly_entropy_threshold=0.4, fly_entropy_top_k=5
                )
            },
            {
                "rejection_sample_method": "fly",
                "fly_window_size": 3,
                "fly_entropy_threshold": 0.4,
                "fly_entropy_top_k": 5,
            },
            id="lossy verification",
        ),
        pytest.param(
            {"rejection_sampling": RejectionSampling(method="block")},
            {"rejection_sample_method": "block"},
            id="verification by blocks",
        ),
    ],
)
def test_options_of_a_method_follow_its_other_keys(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = {key: value for key, value in changes.items() if key in ("method", "drafter")}
    assert list(speculation(**changes).items()) == [*speculation(**plain).items(), *expected.items()]


EVERYTHING: dict[str, Any] = {
    "structured_output_backend": "auto",
    "max_queued_requests": 1,
    "max_queued_tokens": 1,
    "kv_transfer": KvTransfer(connector="NixlConnector", role="both", load_failure_policy="fail"),
    "heterogeneous_vocab": True,
    "adaptive_verification": True,
    "draft_sampling": "greedy",
    "draft_head_quantization": "fp8",
}
"""One engine that asks for everything that some version lacks, though no real one could have it all."""


@pytest.mark.parametrize(
    ("name", "first", "before"),
    [
        ("--structured-outputs-config", "0.11.0", "0.9.2"),
        ("--max-num-queued-reqs", "0.29.0", "0.24.0"),
        ("--max-num-queued-tokens", "0.29.0", "0.24.0"),
        ("kv_load_failure_policy", "0.13.0", "0.11.0"),
        ("use_heterogeneous_vocab", "0.29.0", "0.24.0"),
        ("enable_adaptive_verification", "0.29.0", "0.24.0"),
        ("draft_sample_method", "0.24.0", "0.20.2"),
        ("draft_lm_head_quantization", "0.33.0", "0.32.0"),
    ],
)
def test_what_a_version_is_known_not_to_have_is_left_out(name: str, first: str, before: str) -> None:
    assert name in " ".join(engine_args(config(version=first, **EVERYTHING)))
    assert name not in " ".join(engine_args(config(version=before, **EVERYTHING)))
    assert name in " ".join(engine_args(config(version=None, **EVERYTHING)))


@pytest.mark.parametrize(
    ("method", "first", "before"),
    [("standard", "0.24.0", "0.20.2"), ("block", "0.29.0", "0.24.0"), ("fly", "0.33.0", "0.32.0")],
)
def test_a_version_without_that_rule_keeps_its_own(method: str, first: str, before: str) -> None:
    sampling = RejectionSampling(method=method)
    assert speculation(version=first, rejection_sampling=sampling)["rejection_sample_method"] == method
    assert "rejection_sample_method" not in speculation(version=before, rejection_sampling=sampling)


def test_weights_that_are_no_repository_have_no_revision() -> None:
    drafter = Drafter(model="org/draft", revision="r", source="image", path="/mnt/draft")
    engine = config(model_source="volume", model_path="/mnt/model/a", revision="main", drafter=drafter)
    assert engine_args(engine)[:2] == ["--model", "/mnt/model/a"]
    assert "--revision" not in engine_args(engine)
    assert speculation(drafter=drafter)["model"] == "/mnt/draft"
    assert "revision" not in speculation(drafter=drafter)
    assert speculation(drafter=Drafter(model="d", revision="r"))["revision"] == "r"


@given(model=texts, drafter=texts, served=texts, adapter=texts, place=texts, extra=st.dictionaries(texts, texts))
def test_c07_every_text_arrives_as_it_was_written(
    model: str, drafter: str, served: str, adapter: str, place: str, extra: dict[str, str]
) -> None:
    engine = config(
        model=model,
        served_name=served,
        drafter=Drafter(model=drafter),
        lora=Lora(modules=((adapter, place),)),
        kv_transfer=KvTransfer(connector="NixlConnector", role="both", extra=extra),
        extra_args=(f"--x={model}",),
    )
    arguments = [expand(argument, {"HOME": "/root", "": "empty"}) for argument in engine_args(engine)]

    def value(flag: str) -> str:
        return arguments[arguments.index(flag, 4 if flag != "--model" else 0) + 1]

    assert (arguments[1], arguments[3], arguments[-1]) == (model, served, f"--x={model}")
    assert json.loads(value("--speculative-config"))["model"] == drafter
    assert json.loads(value("--lora-modules")) == {"name": adapter, "path": place}
    transfer = json.loads(value("--kv-transfer-config"))
    assert transfer.get("kv_connector_extra_config", {}) == extra


@given(extra=st.dictionaries(st.text(max_size=3), st.integers()))
def test_c07_the_text_does_not_depend_on_the_order_in_which_keys_arrive(extra: dict[str, int]) -> None:
    def rendered(values: dict[str, int]) -> list[str]:
        return engine_args(config(kv_transfer=KvTransfer(connector="c", role="both", extra=values)))

    assert rendered(extra) == rendered(dict(reversed(extra.items())))


@given(texts)
def test_c07_kubernetes_undoes_the_escaping(text: str) -> None:
    assert expand(escape(text), {"HOME": "/root", "": "empty"}) == text


def test_a_dollar_before_a_letter_beyond_ascii_has_to_be_escaped_too() -> None:
    assert expand("$\u00e9", {}) != "$\u00e9", "Kubernetes takes the letter apart"
    assert escape("$\u00e9") == "$$\u00e9"


def test_c25_the_drafter_never_takes_over_the_quantisation_of_the_model() -> None:
    assert "quantization" not in speculation(quantization="fp8")
    assert speculation(quantization="awq", drafter=Drafter(model="d", quantization="awq"))["quantization"] == "awq"
    assert "--quantization" not in engine_args(config(drafter=Drafter(model="d", quantization="awq")))


def test_an_engine_without_speculation_has_no_options_of_a_method() -> None:
    engine: EngineConfig = config(mode="Off", drafter=EAGLE, heterogeneous_vocab=True, draft_sampling="greedy")
    assert not [argument for argument in engine_args(engine) if "draft" in argument or "heterogeneous" in argument]
    assert engine_env(engine)["VLLM_USE_V2_MODEL_RUNNER"] == "1"
