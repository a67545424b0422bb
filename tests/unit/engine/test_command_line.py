"""The engine's command line and environment."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.schedule import InvalidSchedule, parse_rows
from outrider.engine.command_line import (
    HISTOGRAM_BUCKETS,
    engine_args,
    engine_env,
    escape,
    initial_schedule,
    speculative_tokens_values,
    start_table,
)
from outrider.engine.config import Drafter, EngineConfig
from tests.unit.engine.builders import config, rows


def flag(engine: EngineConfig, name: str) -> str:
    """The value behind a flag."""
    arguments = engine_args(engine)
    return arguments[arguments.index(name) + 1]


def expand(text: str) -> str:
    """What Kubernetes makes of an argument when no variable of that name exists but HOME does."""
    return re.sub(r"\$(\$|\(HOME\))", lambda match: "$" if match.group(1) == "$" else "/root", text)


def test_the_whole_command_line_of_a_small_engine() -> None:
    arguments = engine_args(config(max_num_seqs=4, extra_args=("--enable-prefix-caching",)))
    assert " ".join(arguments[: arguments.index("--custom-histogram-buckets")]) == (
        "--model org/target --served-model-name chat --port 8000 --api-server-count 1 --tensor-parallel-size 1"
        " --max-num-seqs 4 --max-num-batched-tokens 8192"
        ' --speculative-config {"method":"eagle3","model":"org/draft","num_speculative_tokens":5,'
        '"num_speculative_tokens_per_batch_size":[[1,1,3],[2,2,1],[3,3,2],[4,4,5]]}'
        " --cudagraph-capture-sizes 12 24 36 48 --shutdown-timeout 60"
    )
    assert arguments[-1] == "--enable-prefix-caching"


def test_optional_settings_are_rendered_only_when_given() -> None:
    engine = config(
        revision="main", quantization="fp8", kv_cache_dtype="fp8", max_length=32768, gpu_memory_utilization=0.9
    )
    assert (flag(engine, "--revision"), flag(engine, "--gpu-memory-utilization")) == ("main", "0.90")
    assert (flag(engine, "--quantization"), flag(engine, "--kv-cache-dtype")) == ("fp8", "fp8")
    assert flag(engine, "--max-model-len") == "32768"
    assert not {"--revision", "--quantization", "--max-model-len"} & set(engine_args(config()))


@pytest.mark.parametrize("name", ['org/it\'s a "draft" {x}', "/models/$(HOME)/d", "$$(HOME)", "a\\b", "ünïcode", "$"])
def test_the_drafters_name_arrives_as_it_was_written(name: str) -> None:
    argument = flag(config(drafter=Drafter(model=name)), "--speculative-config")
    assert json.loads(expand(argument))["model"] == name


@given(st.text(alphabet="$()HOME{}a"))
def test_kubernetes_undoes_the_escaping(text: str) -> None:
    assert expand(escape(text)) == text


def test_a_reference_is_escaped_with_one_more_dollar() -> None:
    assert escape("/models/$(HOME)/d") == "/models/$$(HOME)/d"


def test_keys_of_the_drafter_come_in_a_fixed_order_and_only_when_set() -> None:
    drafter = Drafter(model="d", revision="r", quantization="fp8", tensor_parallel_size=1, max_length=4096)
    keys = list(json.loads(flag(config(drafter=drafter), "--speculative-config")))
    assert keys == [
        "method",
        "model",
        "revision",
        "quantization",
        "draft_tensor_parallel_size",
        "max_model_len",
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
    ]
    quantized_target = json.loads(flag(config(quantization="fp8"), "--speculative-config"))
    assert "quantization" not in quantized_target, "the drafter never takes over the target's"


def test_off_starts_an_engine_without_a_drafter() -> None:
    arguments = engine_args(config(mode="Off"))
    assert not {"--speculative-config", "--cudagraph-capture-sizes"} & set(arguments)
    assert speculative_tokens_values(config(mode="Off")) == (0,)
    assert str(initial_schedule(config(mode="Off"))) == "1-256:0"


@pytest.mark.parametrize(
    ("version", "absent"),
    [
        pytest.param("0.11.0", "--shutdown-timeout", id="no drain before 0.18"),
        pytest.param("0.29.0", "--custom-histogram-buckets", id="no buckets of one's own before 0.30.1"),
    ],
)
def test_flags_that_a_version_does_not_know_are_left_out(version: str, absent: str) -> None:
    assert absent not in engine_args(config(version=version))
    assert absent in engine_args(config())


def test_an_engine_without_a_table_keeps_its_ceiling() -> None:
    for engine in (config(version="0.23.0"), config(method="suffix", drafter=None)):
        assert speculative_tokens_values(engine) == (5,)
        assert "num_speculative_tokens_per_batch_size" not in flag(engine, "--speculative-config")
        assert str(initial_schedule(engine)) == "1-256:5"


@pytest.mark.parametrize("ceiling", range(1, 17))
def test_the_start_table_names_every_k_once_and_is_valid(ceiling: int) -> None:
    engine = config(max_speculative_tokens=ceiling)
    table = start_table(engine)
    assert parse_rows(table, ceiling=ceiling, max_batch_size=256).values == speculative_tokens_values(engine)
    assert len(table) == len(speculative_tokens_values(engine))


def test_an_image_without_the_plugin_serves_the_initial_schedule_up_to_batches_that_never_come() -> None:
    assert start_table(config()) == [[1, 252, 3], [253, 253, 0], [254, 254, 1], [255, 255, 2], [256, 256, 5]]


def test_an_engine_of_very_few_requests_gets_as_many_k_as_its_table_has_rows() -> None:
    engine = config(max_num_seqs=3)
    assert speculative_tokens_values(engine) == (2, 3, 5)
    assert parse_rows(start_table(engine), ceiling=5, max_batch_size=3).values == (2, 3, 5)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, "1-256:3", id="three at all batch sizes"),
        pytest.param({"max_speculative_tokens": 2, "initial_speculative_tokens": 2}, "1-256:2", id="a smaller ceiling"),
        pytest.param({"max_speculative_tokens": 6}, "1-256:1", id="the nearest below that has graphs"),
        pytest.param({"initial_speculative_tokens": 0}, "1-256:0", id="zero, if so wished"),
        pytest.param(
            {"initial_speculative_tokens": 4, "min_speculative_tokens": 4}, "1-256:5", id="not under the lower bound"
        ),
        pytest.param({"mode": "Observe"}, "1-256:3", id="observing starts like adapting"),
        pytest.param({"mode": "Fixed", "initial_speculative_tokens": 4}, "1-256:4", id="one fixed K"),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 16, 3), (64, 128, 2), (256, 4096, 0))},
            "1-63:3 64-255:2 256-256:0",
            id="a fixed schedule, holes filled and cut at the largest batch",
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 16, 3), (300, 400, 0))}, "1-256:3", id="rows past the largest batch"
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 16, 3), (17, 64, 1))}, "1-16:3 17-256:1", id="the last row goes on"
        ),
        pytest.param({"rows": rows((1, 16, 1))}, "1-256:3", id="a schedule that only mode Fixed keeps"),
    ],
)
def test_initial_schedule(changes: dict[str, Any], expected: str) -> None:
    engine = config(**changes)
    assert str(initial_schedule(engine)) == expected
    assert json.loads(engine_env(engine)["OUTRIDER_INITIAL_SCHEDULE"]) == initial_schedule(engine).as_lists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"rows": rows((1, 8, 5), (9, 64, 1))}, (0, 1, 2, 3, 5), id="within the usual choice: no restart"),
        pytest.param({"rows": rows((1, 8, 5), (9, 64, 4))}, (4, 5), id="outside it: exactly its own"),
        pytest.param({"initial_speculative_tokens": 4}, (4,), id="one K of its own"),
    ],
)
def test_a_fixed_schedule_gets_graphs_for_its_k(changes: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert speculative_tokens_values(config(mode="Fixed", **changes)) == expected


def test_a_schedule_that_cannot_run_is_an_error_and_not_something_else() -> None:
    with pytest.raises(InvalidSchedule):
        initial_schedule(config(mode="Fixed", rows=rows((2, 8, 5), (9, 64, 1))))


def test_the_environment() -> None:
    environment = engine_env(config(startup_budget_s=2400))
    assert environment["VLLM_PLUGINS"] == "outrider"
    assert environment["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert environment["VLLM_ENGINE_READY_TIMEOUT_S"] == "2400"
    assert environment["OUTRIDER_ADMIN_PORT"] == "8001"
    assert environment["OUTRIDER_ADMIN_KEY_FILE"] == "/etc/outrider/admin/key"
    assert environment["OUTRIDER_SCHEDULE_FILE"] == "/etc/outrider/schedule/schedule.json"
    assert environment["OUTRIDER_INITIAL_SCHEDULE"] == "[[1,256,3]]"


def test_a_method_that_the_v2_runner_lacks_runs_on_v1() -> None:
    assert engine_env(config(method="suffix", drafter=None))["VLLM_USE_V2_MODEL_RUNNER"] == "0"


def test_histogram_bounds_are_fine_rising_and_not_too_many() -> None:
    for bounds in HISTOGRAM_BUCKETS.values():
        assert bounds == sorted(set(bounds))
        assert len(bounds) < 100
    tpot = [bound for bound in HISTOGRAM_BUCKETS["inter_token_latency"] if bound <= 2.0]
    assert (tpot[0], tpot[-1]) == (0.001, 2.0)
    assert max(after / before for before, after in itertools.pairwise(tpot)) < 1.11


def test_objectives_are_no_part_of_the_command_line() -> None:
    fields = EngineConfig.__dataclass_fields__
    assert not [name for name in fields if "tpot" in name or "ttft" in name or "objective" in name]
