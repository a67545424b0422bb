"""What stops an engine before it serves: the mistakes that vLLM refuses, when, and with which exit status."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.simulator.command_line import parse
from outrider.simulator.exits import EngineExit
from tests.unit.simulator.builders import PLUGIN, speculative


def synthetic(rates: object) -> list[str]:
    return speculative(rejection_sample_method="synthetic", synthetic_acceptance_rates=rates)


def refused(arguments: list[str], environment: dict[str, str] | None = None) -> EngineExit:
    with pytest.raises(EngineExit) as caught:
        parse(arguments, environment or {})
    return caught.value


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        pytest.param(["--max-num-sequences", "4"], 2, "unrecognized arguments: --max-num-sequences", id="misspelt"),
        pytest.param(["--max-num-seqs", "many"], 2, "invalid int value: 'many'", id="a word for a number"),
        pytest.param(["--speculative-config", "{method:"], 2, "cannot be converted", id="broken JSON"),
        pytest.param(["--max-num"], 2, "ambiguous option", id="an ambiguous abbreviation"),
        pytest.param(["--config", "file.yaml"], 2, "reads no --config", id="a configuration file"),
        pytest.param(["--speculative-config", "[1]"], 1, "no attribute 'items'", id="JSON that is no object"),
        pytest.param(speculative(num_speculative_token=3), 1, "Unexpected keyword argument", id="a misspelt key"),
        pytest.param(speculative(synthetic_acceptance_rate=[1]), 1, "Unexpected keyword", id="a key of old"),
        pytest.param(speculative(method="medusa"), 1, "should be one of", id="an unknown method"),
        pytest.param(speculative(num_speculative_tokens=0), 1, "greater than 0", id="K of 0"),
        pytest.param(speculative(num_speculative_tokens=""), 1, "must be provided", id="no K"),
        pytest.param(speculative(num_speculative_tokens="four"), 1, "valid integer", id="a word for K"),
        pytest.param(
            speculative(num_speculative_tokens_per_batch_size=[[1, 4]]), 1, "Field required", id="a row of two"
        ),
        pytest.param(
            speculative(num_speculative_tokens_per_batch_size={"1-4": 3}), 1, "valid list", id="a table as map"
        ),
        pytest.param(speculative(model=""), 1, "without speculative model", id="no draft model"),
        pytest.param(speculative(tensor_parallel_size=2), 1, "draft_tensor_parallel_size", id="an old key"),
        pytest.param(
            [*speculative(draft_tensor_parallel_size=3), "-tp", "4"], 1, "other value than 1", id="a draft's own TP"
        ),
        pytest.param(
            speculative(method="ngram", prompt_lookup_min=5, prompt_lookup_max=3), 1, "must be <=", id="bounds reversed"
        ),
        pytest.param(speculative(method="suffix"), 1, "V2 does not yet support", id="suffix on runner V2"),
        pytest.param(
            speculative(use_heterogeneous_vocab=True), 1, "only for method draft_model", id="vocabularies with eagle3"
        ),
        pytest.param(
            speculative(rejection_sample_method="synthetic", synthetic_acceptance_rates=[0.5]),
            *(1, "must have length 5"),
            id="too few synthetic rates",
        ),
        pytest.param(speculative(synthetic_acceptance_length=2.0), 1, "not 'synthetic'", id="synthetic by accident"),
        pytest.param(
            speculative(num_speculative_tokens=1, rejection_sample_method="fly"), 1, "at least 2", id="fly with K of 1"
        ),
        pytest.param(speculative(max_model_len=10**6), 1, "above the target's", id="a draft longer than the target"),
        pytest.param([*speculative(), "--spec-tokens", "3"], 1, "mutually exclusive", id="K in two places"),
        pytest.param(["--max-num-batched-tokens", "100"], 1, "greater than or equal to max_num_seqs", id="budget"),
        pytest.param(
            [*speculative(), "--enable-lora", "--max-num-batched-tokens", "1000"], 1, "LoRA", id="budget with LoRA"
        ),
        pytest.param(
            [*speculative(), "--max-num-seqs", "2", "--max-num-batched-tokens", "5"], 1, "lookahead", id="lookahead"
        ),
        pytest.param(["--gpu-memory-utilization", "1.5"], 1, "at most 1", id="more memory than there is"),
        pytest.param([*speculative(), "-sc.model", "other"], 1, "must be provided", id="dotted keys lose K"),
        pytest.param(
            ["-sc.a.b", "1", "-sc.a", "2", "-sc.a.c", "3"], 1, "Unexpected keyword", id="keys over each other"
        ),
        pytest.param(["-sc.method"], 1, "a value must follow", id="a dotted key without a value"),
        pytest.param(speculative(num_speculative_tokens=2.5), 1, "valid integer", id="half a token"),
        pytest.param(speculative(num_speculative_tokens=None), 1, "valid integer", id="K of null"),
        pytest.param(speculative(method=["eagle3"]), 1, "valid string", id="a list of methods"),
        pytest.param(speculative(max_model_len="long"), 1, "valid integer", id="a draft's length in words"),
        pytest.param(speculative(max_model_len=0), 1, "greater than or equal to 1", id="a draft's length of 0"),
        pytest.param(speculative(draft_tensor_parallel_size="x"), 1, "valid integer", id="a draft's TP in words"),
        pytest.param(
            speculative(method="ngram", prompt_lookup_min="a", prompt_lookup_max=3),
            1,
            "valid integer",
            id="bounds mixed",
        ),
        pytest.param(speculative(rejection_sample_method="lucky"), 1, "Input should be", id="a way of sampling"),
        pytest.param(synthetic(3), 1, "valid list", id="synthetic rates that are one number"),
        pytest.param(synthetic(["a", 1, 1, 1, 1]), 1, "valid number", id="synthetic rates in words"),
        pytest.param(synthetic([1.5, 1, 1, 1, 1]), 1, "in [0, 1]", id="a synthetic rate above 1"),
        pytest.param(synthetic([0.5, 0.6, 0.1, 0.1, 0.1]), 1, "non-increasing", id="synthetic rates that rise"),
        pytest.param(
            speculative(rejection_sample_method="synthetic", synthetic_acceptance_length=9), 1, "in [1, 6]", id="length"
        ),
        pytest.param(["-cc", '{"cudagraph_capture_sizes":3}'], 2, "valid list", id="one capture size"),
        pytest.param(["-cc", '{"max_cudagraph_capture_size":"x"}'], 2, "valid integer", id="a largest graph in words"),
        pytest.param(["-cc", '{"cudagraph_mode":"SOME"}'], 2, "Input should be", id="a graph mode"),
        pytest.param(["-cc", "[]"], 2, "should be an object", id="a compilation config that is a list"),
        pytest.param(["--cudagraph-capture-sizes", "0", "-4"], 1, "at least 1 token", id="a graph of no token"),
        pytest.param(["--max-cudagraph-capture-size", "0"], 1, "at least 1 token", id="a largest graph of no token"),
        pytest.param(
            ["--cudagraph-capture-sizes", "8", "-cc", '{"cudagraph_capture_sizes":[8]}'],
            *(1, "mutually exclusive"),
            id="sizes in two places",
        ),
        pytest.param(
            ["--cudagraph-capture-sizes", "8", "--max-cudagraph-capture-size", "16"],
            *(1, "should be the largest"),
            id="sizes that contradict the largest",
        ),
        pytest.param(["--port", "99999999"], 1, "port must be 0-65535", id="a port that is none"),
        pytest.param(["--shutdown-timeout", "-1"], 1, "greater than or equal to 0", id="a drain of less than nothing"),
        pytest.param(["--pipeline-parallel-size", "0"], 1, "greater than or equal to 1", id="no stage"),
        pytest.param(["--max-model-len", "0"], 1, "positive integer", id="no length"),
        pytest.param(["--max-model-len", "-2"], 1, "positive integer", id="a length below auto"),
        pytest.param(["--max-model-len", "1.5K"], 2, "Decimals are not allowed", id="half a binary thousand"),
        pytest.param(["--swap-space", "4"], 2, "unrecognized arguments", id="a flag of older versions"),
        *(
            pytest.param(["--custom-histogram-buckets", buckets], status, words, id=f"buckets: {name}")
            for buckets, status, words, name in (
                ('{"request_latency":[2,1]}', 1, "strictly increasing", "they fall"),
                ('{"request_latency":[1,1]}', 1, "strictly increasing", "one twice"),
                ('{"request_latency":[0,1]}', 1, "greater than 0", "one of 0"),
                ('{"request_latency":[1,Infinity]}', 1, "finite", "one without end"),
                ('{"request_latency":[]}', 1, "not be empty", "none"),
                ('{"request_latency":[1,"b"]}', 1, "valid number", "words"),
                ('{"request_latency":[[1]]}', 1, "valid number", "a list in the list"),
                ('{"request_latency":[true,2]}', 1, "not a boolean", "a truth value"),
                ('{"request_queue_time_seconds":[1,2]}', 1, "unknown bucket family", "a metric for its family"),
                ("[1,2]", 1, "valid dictionary", "no family"),
                ("{", 2, "cannot be converted", "broken JSON"),
            )
        ),
    ],
)
def test_what_vllm_refuses_at_once(arguments: list[str], exit_code: int, words: str) -> None:
    error = refused(arguments)
    assert (error.exit_code, error.after_load) == (exit_code, False)
    assert words in error.message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(speculative(num_speculative_tokens_per_batch_size=[[2, 9, 3]]), "start at", id="starts at 2"),
        pytest.param(
            speculative(num_speculative_tokens_per_batch_size=[[1, 9, 3], [5, 20, 1]]), "overlap", id="overlap"
        ),
        pytest.param(speculative(num_speculative_tokens_per_batch_size=[[1, 9, -1]]), "invalid range", id="K below 0"),
        pytest.param(["--max-model-len", "10M"], "larger than", id="a length that does not fit the cache"),
    ],
)
def test_what_vllm_finds_only_after_loading(arguments: list[str], words: str) -> None:
    error = refused(arguments)
    assert (error.exit_code, error.after_load) == (1, True)
    assert words in error.message


@pytest.mark.parametrize("port", ["abc", "", "-1", "0", "70000", "80.5"])
def test_an_admin_port_that_is_none_stops_the_engine(port: str) -> None:
    error = refused(speculative(), {**PLUGIN, "OUTRIDER_ADMIN_PORT": port})
    assert error.exit_code == 1
    assert "OUTRIDER_ADMIN_PORT" in error.message


def test_a_service_called_vllm_stops_the_engine() -> None:
    error = refused([], {"VLLM_PORT": "tcp://10.0.0.7:80"})
    assert error.exit_code == 1
    assert "appears to be a URI" in error.message


ODD: tuple[Any, ...] = ([], {}, "x", -1, None)
WORDS = st.sampled_from(
    [
        *("-sc", "-sc.model", "-sc.num_speculative_tokens", "--spec-tokens", "--max-model-len", "--port", "-cc", "-O"),
        *(
            "--custom-histogram-buckets",
            "--cudagraph-capture-sizes",
            "-cc.cudagraph_capture_sizes+",
            "--max_num-seqs=3",
        ),
        *("{}", "[]", "null", "1e999", "-1", "0", "4k", "x", "", "--", "-", ".", "-.", "--.", '{"method":"ngram"}'),
        *(json.dumps({"request_latency": value}) for value in (1, [None], [[]], *ODD)),
        *(speculative(**{key: value})[1] for key in ("model", "max_model_len", "x") for value in ODD),
    ]
)


@settings(max_examples=50)
@given(arguments=st.lists(WORDS, max_size=6), port=st.sampled_from(["8001", "x", ""]))
def test_whatever_is_wrong_ends_the_engine_with_a_sentence(arguments: list[str], port: str) -> None:
    with contextlib.suppress(EngineExit):
        parse(arguments, {"VLLM_PLUGINS": "outrider", "OUTRIDER_ADMIN_PORT": port})


def test_a_refusal_is_an_error_with_status(capsys: Any) -> None:
    assert refused(["--nonsense"]).exit_code == 2
    assert capsys.readouterr() == ("", "")  # the sentence goes to the container's log, not to ours
