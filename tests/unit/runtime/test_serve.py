"""How a command line of ``vllm serve`` is completed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from outrider.core import graphs
from outrider_runtime import serve
from outrider_runtime.serve import Plan, Refused

FIVE = {"method": "eagle3", "model": "drafter", "num_speculative_tokens": 5}
TABLE_OF_FIVE = [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 4, 3], [5, 5, 5]]
"""A batch size for every K that 5 allows, so that vLLM makes graphs for each."""


def plan(*words: str, environment: Mapping[str, str] | None = None, **config: object) -> Plan:
    """For a model, these words and this speculative config."""
    speculative = ("--speculative-config", json.dumps(config)) if config else ()
    return serve.plan(["my/model", *words, *speculative], environment or {})


def value(chosen: Plan, flag: str) -> str:
    assert chosen.arguments.count(flag) == 1, chosen.arguments
    return chosen.arguments[chosen.arguments.index(flag) + 1]


def config_of(chosen: Plan) -> Any:
    return json.loads(value(chosen, "--speculative-config"))


def sizes_of(chosen: Plan) -> list[int]:
    """The last flag."""
    assert chosen.arguments.count("--cudagraph-capture-sizes") == 1, chosen.arguments
    return [int(word) for word in chosen.arguments[chosen.arguments.index("--cudagraph-capture-sizes") + 1 :]]


class TestSpeculation:
    def test_table_graph_sizes_and_first_schedule_are_added(self) -> None:
        chosen = plan(**FIVE)
        assert config_of(chosen) == FIVE | {"num_speculative_tokens_per_batch_size": TABLE_OF_FIVE}
        sizes = sizes_of(chosen)
        assert sizes[0] == 12  # the common multiple of 1, 2, 3, 4 and 6
        assert graphs.unsafe_batches((0, 1, 2, 3, 5), sizes, 256) == []
        assert chosen.variables == {
            "VLLM_PLUGINS": "outrider",
            "VLLM_USE_V2_MODEL_RUNNER": "1",
            "OUTRIDER_INITIAL_SCHEDULE": "[[1, 1, 5]]",
        }
        assert chosen.sentence == (
            f"K 0, 1, 2, 3, 5 can change while the engine runs; {len(sizes)} CUDA-graph sizes up to {sizes[-1]}, "
            "multiples of 12 that target and drafter share"
        )

    def test_fewer_requests_need_fewer_graphs(self) -> None:
        chosen = plan("--max-num-seqs", "8", **FIVE)
        assert max(sizes_of(chosen)) == 2 * 8 * 6

    @pytest.mark.parametrize("flag", ["--speculative_config", "-sc"])
    def test_other_spellings_of_the_config_are_replaced(self, flag: str) -> None:
        chosen = plan(flag, json.dumps(FIVE))
        assert flag not in chosen.arguments
        assert config_of(chosen)["num_speculative_tokens_per_batch_size"] == TABLE_OF_FIVE

    def test_a_config_after_an_equals_sign_is_replaced(self) -> None:
        chosen = plan(f"--speculative-config={json.dumps(FIVE)}", "--port", "80")
        assert config_of(chosen)["num_speculative_tokens_per_batch_size"] == TABLE_OF_FIVE
        assert value(chosen, "--port") == "80"
        assert not any(word.startswith("--speculative-config=") for word in chosen.arguments)

    def test_a_key_with_hyphens_is_understood(self) -> None:
        chosen = plan(**{"method": "eagle3", "num-speculative-tokens": 5})
        assert config_of(chosen)["num_speculative_tokens_per_batch_size"] == TABLE_OF_FIVE

    def test_a_given_table_is_kept_and_is_what_the_engine_begins_with(self) -> None:
        chosen = plan(**FIVE, num_speculative_tokens_per_batch_size=[[1, 16, 5], [17, 256, 1]])
        assert config_of(chosen)["num_speculative_tokens_per_batch_size"] == [[1, 16, 5], [17, 256, 1]]
        assert "OUTRIDER_INITIAL_SCHEDULE" not in chosen.variables
        assert sizes_of(chosen)[0] == 6  # the common multiple of 2 and 6
        assert "K 1, 5 can change" in chosen.sentence

    @pytest.mark.parametrize(
        "table",
        [
            pytest.param([[1, 4, 6]], id="K above the ceiling"),
            pytest.param([[1, 4, -1]], id="K below nothing"),
            pytest.param([[1, 4]], id="a row without K"),
            pytest.param({"1": 5}, id="no list"),
            pytest.param(
                [[1, 4, "5"]],
                id="K as text",
            ),
            pytest.param(5, id="a number"),
        ],
    )
    def test_a_table_that_cannot_be_read_is_refused(self, table: object) -> None:
        with pytest.raises(Refused, match="num_speculative_tokens_per_batch_size"):
            plan(**FIVE, num_speculative_tokens_per_batch_size=table)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            pytest.param("{method: eagle3}", "no JSON", id="no JSON"),
            pytest.param("[5]", "must be a JSON object", id="no object"),
            pytest.param("", "no JSON", id="nothing"),
        ],
    )
    def test_a_config_that_cannot_be_read_is_refused(self, text: str, words: str) -> None:
        with pytest.raises(Refused, match=words):
            plan("--speculative-config", text)

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            pytest.param({}, "does not speculate", id="no speculation"),
            pytest.param({"method": "mtp"}, "K stays as vLLM chooses it", id="no ceiling"),
            *(
                pytest.param({"method": method, "num_speculative_tokens": 5}, "in every step", id=method)
                for method in serve.STATIC_METHODS
            ),
        ],
    )
    def test_where_k_cannot_change_the_engine_is_started_as_it_was_said(
        self, config: dict[str, object], words: str
    ) -> None:
        chosen = plan(**config)
        assert words in chosen.sentence
        assert "--cudagraph-capture-sizes" not in chosen.arguments
        assert chosen.variables == {"VLLM_PLUGINS": "outrider"}
        if config:
            assert config_of(chosen) == config

    def test_several_ranks_are_started_as_it_was_said(self) -> None:
        chosen = plan("--data-parallel-size", "2", **FIVE)
        assert "drops the schedule under data parallelism" in chosen.sentence
        assert config_of(chosen) == FIVE

    def test_a_start_table_fits_the_largest_batch(self) -> None:
        """vLLM cuts a table at max_num_seqs. What was cut off is no K of this engine, and of all K it is the ceiling,
        which the first schedule asks for: the plugin then cannot attach."""
        rows = config_of(plan("--max-num-seqs", "4", **FIVE))["num_speculative_tokens_per_batch_size"]
        assert max(k for first, _, k in rows if first <= 4) == 5


class TestGraphSizes:
    def test_given_sizes_that_target_and_drafter_share_are_kept(self) -> None:
        chosen = plan("--cudagraph-capture-sizes", "12", "24", "--max-num-seqs", "4", **FIVE)
        assert chosen.arguments.count("--cudagraph-capture-sizes") == 1
        assert "share them all" in chosen.sentence

    def test_given_sizes_that_they_do_not_share_are_kept_and_counted(self) -> None:
        chosen = plan("--cudagraph-capture-sizes", "1", "2", "4", "8", "16", "--max-num-seqs", "4", **FIVE)
        unsafe = graphs.unsafe_batches((1, 2, 3, 5), (1, 2, 4, 8, 16), 4)  # four requests have room for four K
        assert unsafe
        assert f"{len(unsafe)} batch sizes need the guard" in chosen.sentence

    @pytest.mark.parametrize(
        "words",
        [
            ("--enforce-eager",),
            ("--max-cudagraph-capture-size", "64"),
            ("--compilation-config", '{"cudagraph_mode": "NONE"}'),
            ("--compilation-config={}",),
            ("-O3",),
            ("-O.cudagraph_mode=NONE",),
            ("--cudagraph_capture_sizes", "12", "24"),
            ("-cc", '{"cudagraph_capture_sizes": [12, 24]}'),
            ("-cc.cudagraph_capture_sizes", "[12, 24]"),
            ("--compilation-config.cudagraph_capture_sizes", "[12, 24]"),
        ],
        ids=" ".join,
    )
    def test_other_words_about_graphs_are_left_alone(self, words: tuple[str, ...]) -> None:
        chosen = plan(*words, **FIVE)
        assert "--cudagraph-capture-sizes" not in chosen.arguments
        assert set(words) <= set(chosen.arguments)


class TestUnsafe:
    @pytest.mark.parametrize(
        ("words", "flag"),
        [
            pytest.param(("--trust-remote-code",), "--trust-remote-code", id="in full"),
            pytest.param(("--trust_remote_code",), "--trust-remote-code", id="with underscores"),
            pytest.param(("--trust-rem",), "--trust-remote-code", id="abbreviated"),
            pytest.param(("--trust_rem",), "--trust-remote-code", id="abbreviated with underscores"),
            pytest.param(("--trust-remote-code=true",), "--trust-remote-code", id="with a value"),
            pytest.param(("--allowed-local-media-path", "/"), "--allowed-local-media-path", id="a path"),
            pytest.param(("--allowed-l=/",), "--allowed-local-media-path", id="a path, abbreviated"),
            pytest.param(("--config", "flags.yaml"), "--config", id="flags in a file"),
            pytest.param(("--grpc",), "--grpc", id="another server"),
        ],
    )
    def test_a_flag_that_opens_the_server_is_refused_by_its_full_name(self, words: tuple[str, ...], flag: str) -> None:
        with pytest.raises(Refused) as refused:
            plan(*words, **FIVE)
        faults = refused.value.faults
        assert f"({flag}) is refused: it " in faults[0]
        assert faults[1:] == ("set OUTRIDER_ALLOW_UNSAFE=1 to start all the same",)

    @pytest.mark.parametrize(
        "words",
        [("--config-format", "hf"), ("--allowed-origins", "[]"), ("--trust-request-chat-template",), ("--tp", "2")],
        ids=" ".join,
    )
    def test_flags_that_only_look_alike_pass(self, words: tuple[str, ...]) -> None:
        assert set(words) <= set(plan(*words, **FIVE).arguments)

    @pytest.mark.parametrize(
        "name",
        [
            "VLLM_SERVER_DEV_MODE",
            "VLLM_ALLOW_INSECURE_SERIALIZATION",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
            "VLLM_USE_RUST_FRONTEND",
        ],
    )
    def test_a_variable_that_opens_the_server_is_refused_unless_it_is_off(self, name: str) -> None:
        for off in ("", "0", "False"):
            plan(environment={name: off})
        for on in ("1", "True"):
            with pytest.raises(Refused, match=f"{name} is refused: it "):
                plan(environment={name: on})

    def test_all_faults_are_named_at_once(self) -> None:
        with pytest.raises(Refused) as refused:
            plan("--grpc", "--trust-remote-code", environment={"VLLM_SERVER_DEV_MODE": "1"})
        assert len(refused.value.faults) == 4  # with the way out

    def test_the_brave_get_what_they_asked_for_and_are_told(self) -> None:
        chosen = plan("--trust-remote-code", environment={"OUTRIDER_ALLOW_UNSAFE": "1"}, **FIVE)
        assert "--trust-remote-code" in chosen.arguments
        assert "UNSAFE: --trust-remote-code" in chosen.sentence

    def test_only_1_is_brave(self) -> None:
        with pytest.raises(Refused):
            plan("--grpc", environment={"OUTRIDER_ALLOW_UNSAFE": "0"})


class TestServer:
    def test_the_model_becomes_a_flag(self) -> None:
        assert serve.plan(["my/model", "--port", "80"], {}).arguments[:2] == ("--model", "my/model")

    def test_a_model_that_is_a_flag_already_stays_one(self) -> None:
        assert serve.plan(["--model", "my/model"], {}).arguments[:2] == ("--model", "my/model")

    def test_one_api_server_is_started(self) -> None:
        assert value(plan(), "--api-server-count") == "1"

    @pytest.mark.parametrize(
        "words",
        [
            ("--api-server-count", "2"),
            ("--api_server_count=2",),
            ("-asc", "2"),
        ],
        ids=" ".join,
    )
    def test_more_are_refused_unless_one_insists(self, words: tuple[str, ...]) -> None:
        with pytest.raises(Refused, match="--api-server-count 2 is refused: it leaves /metrics without step times"):
            plan(*words)
        assert "1" not in plan(*words, environment={"OUTRIDER_ALLOW_UNSAFE": "1"}).arguments

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            pytest.param("", "outrider", id="nothing else"),
            pytest.param("other", "other,outrider", id="beside others"),
            pytest.param("outrider,other", "outrider,other", id="named already"),
        ],
    )
    def test_vllm_loads_the_plugin(self, given: str, expected: str) -> None:
        assert plan(environment={"VLLM_PLUGINS": given}).variables["VLLM_PLUGINS"] == expected

    def test_a_runner_and_a_first_schedule_that_were_chosen_stay(self) -> None:
        given = {"VLLM_USE_V2_MODEL_RUNNER": "0", "OUTRIDER_INITIAL_SCHEDULE": "[[1, 256, 3]]"}
        assert set(plan(environment=given, **FIVE).variables) == {"VLLM_PLUGINS"}

    def test_the_callers_words_are_left_whole(self) -> None:
        words = ["my/model", "--speculative-config", json.dumps(FIVE)]
        serve.plan(words, {})
        assert words == ["my/model", "--speculative-config", json.dumps(FIVE)]
