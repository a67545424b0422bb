"""Arguments and variables that are not the user's: every spelling that vLLM's parser takes."""

from __future__ import annotations

import re

import pytest

from outrider.api.arguments import REFUSED_ARGUMENTS, REFUSED_ENVIRONMENT
from outrider.engine.flags import ENVIRONMENT, FLAGS, FURTHER, REFUSED, owned_flag, refused_variable, spells


@pytest.mark.parametrize(
    ("argument", "flag"),
    [
        ("--max-num-seqs", "--max-num-seqs"),
        ("--max-num-seqs=64", "--max-num-seqs"),
        ("--max-num-seq", "--max-num-seqs"),
        ("--max_num_seqs", "--max-num-seqs"),
        ("--max_num-seq=64", "--max-num-seqs"),
        ("--speculative-config.method", "--speculative-config"),
        ("--speculative-conf.num_speculative_tokens=9", "--speculative-config"),
        ("--spec-tokens", "--spec-tokens"),
        ("-sc", "-sc"),
        ("-sc.method=ngram", "-sc"),
        ("-s", "-sc"),
        ("-tp=2", "-tp"),
        ("-qfp8", "-q"),
        ("--trust-remote", "--trust-remote-code"),
        ("--compilation-config.cudagraph_capture_sizes+", "--compilation-config"),
        ("-cc.cudagraph_mode=NONE", "-cc"),
        ("--config", "--config"),
        ("--", "--model"),
        ("--device-memory-util=0.5", "--device-memory-utilization"),
        ("--ssl_keyfile=/k", "--ssl-keyfile"),
        ("--nnodes", "--nnodes"),
        ("-n2", "-n"),
        ("-O3", "-O"),
        ("--optimization-level=0", "--optimization-level"),
        ("-dpr", "-dpr"),
    ],
)
def test_ours_in_any_spelling(argument: str, flag: str) -> None:
    assert owned_flag(argument) == flag


@pytest.mark.parametrize(
    "argument",
    [
        "--enable-prefix-caching",
        "--model-impl",
        "--seed",
        "-1",
        "64",
        "--enable-lora",
        "--attention-backend=TRITON_ATTN",
        "--max-num-queued-reqs",
        '{"max-num-seqs": 3}',
    ],
)
def test_the_users_own(argument: str) -> None:
    assert owned_flag(argument) is None


def test_every_refusal_is_said_once_and_has_its_own_remedy() -> None:
    assert not set(FLAGS) & set(FURTHER)
    assert all(owned_flag(flag) == flag for flag in REFUSED)


@pytest.mark.parametrize(
    ("argument", "flag", "meant"),
    [
        ("--enable-lora", "--enable-lora", True),
        ("--enable_lo=true", "--enable-lora", True),
        ("--enable-lora.x", "--enable-lora", True),
        ("--enable-lora-bias", "--enable-lora", False),
        ("--", "--enable-lora", False),
        ("enable-lora", "--enable-lora", False),
    ],
)
def test_what_an_argument_may_spell(argument: str, flag: str, meant: bool) -> None:
    assert spells(argument, flag) is meant


@pytest.mark.parametrize("flag", FLAGS)
def test_the_crd_refuses_each_by_its_name(flag: str) -> None:
    for spelling in (flag, f"{flag}=x", f"{flag}.key=x", f"{flag}.key+"):
        assert re.search(REFUSED_ARGUMENTS, spelling)
    assert not re.search(REFUSED_ARGUMENTS, f"{flag}-of-another-kind")


def test_the_crd_refuses_no_other() -> None:
    names = re.sub(r"^\^\(--\((.*)\)\|(.*)\)\(.*$", r"\1|\2", REFUSED_ARGUMENTS).split("|")
    assert {name if name.startswith("-") else f"--{name}" for name in names} == set(FLAGS)


@pytest.mark.parametrize("name", [*ENVIRONMENT, "OUTRIDER_ADMIN_PORT", "OUTRIDER_ANYTHING"])
def test_variables_are_refused_here_and_in_the_crd(name: str) -> None:
    assert refused_variable(name)
    assert re.search(REFUSED_ENVIRONMENT, name)


def test_the_crd_refuses_no_other_variable() -> None:
    names = set(REFUSED_ENVIRONMENT.removeprefix("^(").removesuffix(")$").split("|"))
    assert names == {*ENVIRONMENT, "OUTRIDER_.*"}


@pytest.mark.parametrize("name", ["VLLM_LOGGING_LEVEL", "VLLM_API_KEY", "HF_HUB_OFFLINE", "NCCL_DEBUG"])
def test_other_variables_are_the_users(name: str) -> None:
    assert refused_variable(name) is None
    assert not re.search(REFUSED_ENVIRONMENT, name)
