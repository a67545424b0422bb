"""A container's arguments and environment, and the engine that becomes of them, as in vLLM."""

from __future__ import annotations

import pytest

from outrider.core.schedule import parse_text
from outrider.engine import command_line as rendered
from outrider.engine.config import Drafter, EngineConfig
from outrider.engine.flags import FLAGS
from outrider.simulator.command_line import parse
from outrider.simulator.exits import EngineExit
from outrider.simulator.settings import EngineSettings
from tests.unit.simulator.builders import PLUGIN, speculative


def test_the_operators_command_line_becomes_an_engine() -> None:
    engine = parse(
        [
            *("--model", "meta-llama/Llama-3.1-8B-Instruct", "--served-model-name", "chat", "--port", "8000"),
            *speculative(),
            *("--max-num-seqs", "256", "--max-num-batched-tokens", "8192", "--max-model-len", "16384"),
            *("--cudagraph-capture-sizes", "12", "24", "504", "--api-server-count", "1", "--shutdown-timeout", "60"),
            *("--custom-histogram-buckets", '{"inter_token_latency":[0.005,0.01]}'),
            *("--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.9"),
        ],
        {**PLUGIN, "VLLM_API_KEY": "secret"},
    )
    assert engine.served_model_name == "chat"
    assert engine.speculation is not None
    assert engine.speculation.values == (0, 1, 2, 3, 5)
    assert engine.start_schedule == parse_text("1-256:3")
    assert (engine.capture_size, engine.max_model_len, engine.shutdown_timeout_s) == (504, 16384, 60.0)
    assert engine.histogram_buckets == {"inter_token_latency": (0.005, 0.01)}
    assert engine.api_keys == ("secret",)
    assert engine.plugin is not None
    assert engine.plugin.key_file == "/etc/outrider/admin/key"
    assert engine.not_controllable_because == ""


@pytest.mark.parametrize(
    ("arguments", "field", "expected"),
    [
        pytest.param([], "max_num_seqs", 256, id="defaults"),
        pytest.param(["--max-num-seq", "12"], "max_num_seqs", 12, id="an abbreviation"),
        pytest.param(["--max_num_seqs=12"], "max_num_seqs", 12, id="underscores and an equals sign"),
        pytest.param(["--max-model-len", "16k"], "max_model_len", 16_000, id="a decimal suffix"),
        pytest.param(["--max-model-len", "16K"], "max_model_len", 16_384, id="a binary suffix"),
        pytest.param(["org/model"], "model", "org/model", id="the model as a word"),
        pytest.param(["vllm", "serve", "org/model"], "model", "org/model", id="with a command"),
        pytest.param(["--enforce-eager"], "capture_size", 0, id="no graphs"),
        pytest.param(["--max-num-seqs", "64"], "capture_size", 128, id="graphs for twice the largest batch"),
        pytest.param(
            ["--max-cudagraph-capture-size", "300"], "capture_size", 288, id="a largest graph, every 16th size"
        ),
        pytest.param(["-cc.max_cudagraph_capture_size=96"], "capture_size", 96, id="a largest graph in the JSON"),
        pytest.param(["-cc", '{"cudagraph_mode":"none"}'], "capture_size", 0, id="no graphs in the JSON"),
        pytest.param(["-cc", '{"cudagraph_capture_sizes":[8,"16"]}'], "capture_sizes", (8, 16), id="sizes in the JSON"),
        pytest.param(
            ["--cudagraph-capture-sizes", "8", "9000", "24"], "capture_sizes", (8, 24), id="no size above the budget"
        ),
        pytest.param(["--max-model-len", "auto", "-tp", "2"], "max_model_len", 131_072, id="the model's own length"),
        pytest.param(
            ["--max-model-len", "-1", "--num-gpu-blocks-override", "1000"],
            *("max_model_len", 16_000),
            id="what fits of it",
        ),
        pytest.param(["--num-gpu-blocks-override", "9000"], "num_gpu_blocks", 9000, id="blocks given"),
        pytest.param(["--kv-cache-memory-bytes", "20G"], "num_gpu_blocks", 10240, id="cache memory given"),
        pytest.param(["--api-key", "a", "b"], "api_keys", ("a", "b"), id="keys in the arguments"),
        pytest.param(["--trust-remote-code", "--seed", "1"], "speculation", None, id="flags that change nothing"),
        pytest.param(["--no-enable-prefix-caching"], "speculation", None, id="a switch turned off"),
    ],
)
def test_flags_are_read_as_vllm_reads_them(arguments: list[str], field: str, expected: object) -> None:
    assert getattr(parse(arguments, {}), field) == expected


def test_the_default_cache_is_that_of_the_measured_card() -> None:
    assert parse([], {}).num_gpu_blocks == pytest.approx(EngineSettings().num_gpu_blocks, rel=0.05)
    assert parse(["--kv-cache-dtype", "fp8"], {}).num_gpu_blocks == pytest.approx(
        2 * parse([], {}).num_gpu_blocks, abs=1
    )


@pytest.mark.parametrize(
    ("arguments", "method", "ceiling"),
    [
        pytest.param(["-sc.method", "ngram", "-sc.num_speculative_tokens=3"], "ngram", 3, id="dotted keys"),
        pytest.param(["--speculative_config.method=ngram", "--spec-tokens", "3"], "ngram", 3, id="and a short flag"),
        pytest.param(["--spec-method", "ngram", "--spec-tokens", "3"], "ngram", 3, id="short flags alone"),
        pytest.param(["-sc", '{"method":"ngram","num-speculative-tokens":"3"}'], "ngram", 3, id="hyphens and a text"),
        pytest.param(
            ["-sc", "{}", "-sc.method", "ngram", "-sc.num_speculative_tokens", "9", "-sc.num_speculative_tokens", "3"],
            *("ngram", 3),
            id="the last of two values",
        ),
        pytest.param(
            ["-sc.method", "ngram", "-sc.num_speculative_tokens", "3", *speculative()],
            *("ngram", 3),
            id="dotted keys replace a whole document, wherever it stands",
        ),
        pytest.param(["-sc", '{"method":"qwen3_5_mtp","num_speculative_tokens":1}'], "mtp", 1, id="a model's own MTP"),
        pytest.param(["-sc", '{"model":"org/Eagle3-draft","num_speculative_tokens":1}'], "eagle3", 1, id="by its name"),
    ],
)
def test_where_the_speculative_config_comes_from(arguments: list[str], method: str, ceiling: int) -> None:
    engine = parse(arguments, {})
    assert engine.speculation is not None
    assert (engine.speculation.method, engine.speculation.max_speculative_tokens) == (method, ceiling)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        pytest.param(speculative(num_speculative_tokens_per_batch_size=[]), {}, "empty", id="an empty table"),
        pytest.param([*speculative(), "--data-parallel-size", "2"], {}, "data parallel", id="data parallel"),
        pytest.param(
            speculative(method="ngram_gpu"), {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "cannot vary K", id="a method on V1"
        ),
    ],
)
def test_what_drops_the_table_with_a_warning(arguments: list[str], environment: dict[str, str], words: str) -> None:
    warnings: list[str] = []
    engine = parse(arguments, environment, warn=warnings.append)
    assert engine.speculation is not None
    assert engine.speculation.table is None
    assert engine.start_schedule == parse_text("1-256:5")
    assert "without a table" in engine.not_controllable_because
    assert words in warnings[0]


def test_a_table_may_come_in_any_order() -> None:
    engine = parse(speculative(num_speculative_tokens_per_batch_size=[[5, 256, 1], [1, 4, 3]]), {})
    assert engine.start_schedule == parse_text("1-4:3 5-256:1")


def test_k_above_the_ceiling_is_clamped_and_ranges_are_cut_in_silence() -> None:
    table = [[1, 4, 9], [9, 300, 2]]
    engine = parse(speculative(num_speculative_tokens_per_batch_size=table), {})
    assert engine.speculation is not None
    assert engine.speculation.table == parse_text("1-8:5 9-256:2")


def test_a_k_of_a_range_that_was_cut_still_has_graphs() -> None:
    engine = parse([*speculative(), "--max-num-seqs", "3"], {})
    assert engine.speculation is not None
    assert engine.speculation.values == (0, 1, 2, 3, 5)


@pytest.mark.parametrize(
    ("environment", "installed"),
    [
        pytest.param({}, True, id="not named in VLLM_PLUGINS"),
        pytest.param({"VLLM_PLUGINS": "other"}, True, id="another one named"),
        pytest.param(PLUGIN, False, id="not in the image"),
    ],
)
def test_the_plugin_is_off(environment: dict[str, str], installed: bool) -> None:
    assert parse(speculative(), environment, plugin_installed=installed).plugin is None


@pytest.mark.parametrize("text", ["[[1,256,4]]", "[[1,999,3]]", "three", "{}"])
def test_an_unusable_initial_schedule_leaves_the_start_up_table(text: str) -> None:
    warnings: list[str] = []
    engine = parse(speculative(), {**PLUGIN, "OUTRIDER_INITIAL_SCHEDULE": text}, warn=warnings.append)
    assert engine.start_schedule == parse_text("1-1:0 2-2:1 3-3:2 4-4:3 5-256:5")
    assert len(warnings) == 1


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_that_the_operator_keeps_for_itself_is_known_here(flag: str) -> None:
    message = ""
    try:
        parse([flag, "1"], {})
    except EngineExit as error:
        message = error.message
    assert "unrecognized arguments: -" not in message


def test_the_command_line_that_the_operator_renders_is_taken_without_a_warning() -> None:
    config = EngineConfig(
        version="0.33.0",
        model="org/model",
        served_name="chat",
        method="eagle3",
        drafter=Drafter(model="org/draft"),
        mode="Adaptive",
        max_speculative_tokens=5,
        max_length=16_384,
    )
    warnings: list[str] = []
    engine = parse(rendered.engine_args(config), rendered.engine_env(config), warn=warnings.append)
    assert warnings == []
    assert engine.start_schedule == rendered.initial_schedule(config)
    assert engine.not_controllable_because == ""
    assert engine.speculation is not None
    assert engine.speculation.values == rendered.speculative_tokens_values(config)
    assert engine.capture_sizes == tuple(rendered.capture_sizes(config))
    assert engine.histogram_buckets == {name: tuple(grid) for name, grid in rendered.HISTOGRAM_BUCKETS.items()}
