"""What is refused before anything is rendered, and what is admitted with a warning."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.engine.admission import admit
from outrider.errors import InvalidSpec
from tests.unit.engine.builders import EAGLE, config, rows


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        pytest.param(
            {"extra_args": ("--seed", "1", "--max-num-seq=9")},
            "ArgumentRefused",
            "spec.engine.extraArgs[2]: --max-num-seq, which vLLM may read as --max-num-seqs, is set from"
            " spec.engine.maxNumSeqs; remove it",
            id="an abbreviation of a flag of ours",
        ),
        pytest.param(
            {"extra_args": ("--api-key", "secret")},
            "ArgumentRefused",
            "set VLLM_API_KEY in spec.engine.env from a Secret",
            id="a key on the command line",
        ),
        pytest.param(
            {"extra_args": ("other/model",)}, "ArgumentRefused", "would take for a model", id="a model of its own"
        ),
        pytest.param(
            {"extra_env": ("VLLM_SERVER_DEV_MODE",)}, "VariableRefused", "VLLM_SERVER_DEV_MODE opens", id="a variable"
        ),
        pytest.param({"gpus": 4}, "GpusNotUsed", "gpus is 4 and spec.parallelism.tensor 1", id="GPUs without use"),
        pytest.param(
            {"drafter": type(EAGLE)(model="d", tensor_parallel_size=2), "gpus": 4, "tensor_parallel_size": 4},
            "DrafterParallelism",
            "it must be 1 or 4",
            id="a drafter on two of four GPUs",
        ),
        pytest.param(
            {"method": "medusa"},
            "MethodNotInVersion",
            "vLLM 0.33.0 has no medusa: choose among dflash,",
            id="a gone method",
        ),
        pytest.param(
            {"memory_bytes": 2.0**20 - 1},
            "SharedMemory",
            "spec.resources.memory is 1048575 bytes: give it a unit, for example 64Gi",
            id="memory without a unit",
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 4), (65, 256, 6)), "max_speculative_tokens": 6},
            "NoCommonGraphs",
            "asks for 4, 5, 6: no CUDA graph sizes up to 512 tokens serve them all; choose among 0, 1, 6",
            id="a schedule whose K share no graph sizes",
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 3)), "method": "suffix", "drafter": None},
            "OneSpeculativeTokens",
            "set maxSpeculativeTokens to it",
            id="a schedule for a method that keeps one K",
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((2, 8, 5), (5, 64, 3))},
            "ScheduleInvalid",
            "overlap",
            id="rows that only an older API server lets through",
        ),
    ],
)
def test_refused(changes: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        admit(config(**changes))
    assert refusal.value.reason == reason
    assert words in refusal.value.message


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(InvalidSpec) as refusal:
        admit(config(extra_args=("-sc", "{}"), extra_env=("HF_HOME",), gpus=2))
    assert all(name in refusal.value.message for name in ("extraArgs[0]", "HF_HOME", "gpus"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"version": None}, "the version is unknown", id="an image without a version"),
        pytest.param(
            {"version": "0.29.0"}, "not in the table of versions whose runner was studied", id="a version without a row"
        ),
        pytest.param({"version": "0.11.0"}, "answers will be cut off", id="a version that cannot drain"),
        pytest.param({"version": "0.20.0"}, "stay at 5: vLLM 0.20.0 has no table", id="a version without a table"),
        pytest.param({"extra_args": ("--enable-lora",)}, "from adapter to adapter", id="adapters"),
        pytest.param({"method": "suffix", "drafter": None}, "stay at 5", id="a method that keeps one K"),
        pytest.param(
            {"initial_speculative_tokens": 4}, "so 3 is used; choose among 0, 1, 2, 3, 5", id="a start without graphs"
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 16, 3), (64, 128, 2), (256, 4096, 0))},
            "no row for batch 17-63: K 3 of the row before it is used there",
            id="a table with a hole",
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 16, 3), (64, 128, 2), (256, 4096, 0))},
            "no row for batch 129-255: K 2 of the row before it",
            id="and its second one",
        ),
        pytest.param(
            {"mode": "Fixed", "rows": rows((1, 8, 5), (9, 64, 4))}, "in steps of 30 tokens", id="a schedule that pads"
        ),
    ],
)
def test_admitted_with_a_warning(changes: dict[str, Any], words: str) -> None:
    assert any(words in warning for warning in admit(config(**changes)).warnings)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="the minimal example"),
        pytest.param({"mode": "Off"}, id="no speculation"),
        pytest.param({"mode": "Off", "extra_args": ("--enable-lora",)}, id="adapters without speculation"),
        pytest.param({"mode": "Fixed", "rows": rows((1, 16, 3), (17, 4096, 0))}, id="a table without holes"),
        pytest.param({"rows": rows((1, 16, 3), (64, 4096, 0))}, id="a table with a hole that nobody keeps"),
        pytest.param({"mode": "Fixed", "initial_speculative_tokens": 4}, id="one fixed K of the user's own"),
        pytest.param({"extra_args": ("--enable-prefix-caching", "--seed", "-1")}, id="arguments of the user's own"),
    ],
)
def test_admitted_without_a_word(changes: dict[str, Any]) -> None:
    assert admit(config(**changes)).warnings == ()
