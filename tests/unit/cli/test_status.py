"""``outrider status``: what it says, and the statuses that scripts rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import FLEET, SERVICES, FakeCluster, service

CRASHED = [
    {"type": "Ready", "status": "False", "reason": "EngineCrashLoop", "message": "exit status 1"},
    {"type": "EngineReady", "status": "False", "reason": "EngineCrashLoop", "message": "exit status 1"},
]


def test_a_line_a_service_and_zero_when_all_are_ready(ask: Ask) -> None:
    result = ask(FakeCluster(service(), service("code")), "status")
    assert result.exit_code == 0, result.output
    title, chat, code = result.stdout.splitlines()
    assert title.split()[:3] == ["SERVICE", "STATE", "MODE"]
    assert chat.split()[:8] == ["ml/chat", "Ready", "Adaptive", "3", "2.41", "3/3", "20", "TPOT"]
    assert "1-24:3 25-256:1" in chat
    assert code.startswith("ml/code")


def test_one_that_is_not_ready_makes_it_one(ask: Ask) -> None:
    result = ask(FakeCluster(service(), service("code", changes={"status.conditions": CRASHED})), "status")
    assert result.exit_code == 1
    assert "EngineCrashLoop" in result.stdout


def test_of_one_service_everything_is_said(ask: Ask) -> None:
    result = ask(FakeCluster(service()), "status", "chat")
    assert result.exit_code == 0, result.output
    for said in (
        "K 3 up to batch 24, 1 beyond (generation 17, held by 3/3 engines)",
        "2.41 tokens a step; 47 % of the drafted tokens are kept",
        "20 requests in flight a replica, limited by TPOT",
        "3 ready of 3 wanted (bounds 1-6); the load needs 3",
        "TPOT 40 ms for 95 % of the requests",
        "schedule 1-256:2 → 1-24:3 25-256:1",
        "at batch 14 K 2→3: 8 % more",
        "Ready: EnginesServe",
    ):
        assert said in result.stdout
    assert "MetricsAvailable" not in result.stdout, "what is as it should be is not said"


def test_a_condition_that_is_not_as_it_should_be_is_told_with_its_message(ask: Ask) -> None:
    result = ask(FakeCluster(service(changes={"status.conditions": CRASHED})), "status", "chat")
    assert result.exit_code == 1
    assert "bad EngineReady: EngineCrashLoop\n    exit status 1" in result.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents_have_what_scripts_read(ask: Ask, form: str) -> None:
    result = ask(FakeCluster(service()), "status", "-o", form)
    document: dict[str, Any] = {"json": json.loads, "yaml": yaml.safe_load}[form](result.stdout)
    (one,) = document["services"]
    assert (document["version"], document["ready"], one["ready"], one["state"]) == (1, True, True, "Ready")
    assert one["tuning"]["schedule"] == "1-24:3 25-256:1"
    assert one["history"][0]["from"] == "1-256:2"
    assert one["objectives"] == {"tpotMilliseconds": 40, "ttftMilliseconds": None, "percentile": 95}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        pytest.param({"status": None}, "NotSeen", id="no operator has seen it"),
        pytest.param({"metadata.generation": 4}, "NotSeenYet", id="of the spec before"),
        pytest.param({"status.conditions": [*CRASHED, {"type": "Stalled", "status": "True", "reason": "InvalidSpec"}]},
                     "Stalled: InvalidSpec", id="stalled"),
        pytest.param({"status.conditions": [{"type": "Ready", "status": "Unknown", "reason": "InternalError"}]},
                     "Unknown: InternalError", id="unknown"),
    ],
)  # fmt: skip
def test_a_service_that_is_not_current_is_not_ready(ask: Ask, changes: dict[str, Any], state: str) -> None:
    result = ask(FakeCluster(service(changes=changes)), "status", "-o", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["services"][0]["state"] == state


def test_a_status_of_another_version_loses_only_what_is_not_understood(ask: Ask) -> None:
    changes = {"status.tuning.newField": 1, "status.tuning.mode": "Clever", "status.capacity.limitedBy": "Moon"}
    result = ask(FakeCluster(service(changes=changes)), "status", "-o", "json")
    (one,) = json.loads(result.stdout)["services"]
    assert "mode" not in one["tuning"]
    assert one["tuning"]["speculativeTokens"] == 3
    assert one["capacity"]["requestsPerReplica"] == 20


def test_a_name_that_is_not_there_is_three_and_names_those_that_are(ask: Ask) -> None:
    result = ask(FakeCluster(service()), "status", "chta")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        "outrider: no service chta in namespace ml: there are chat; -n looks in another namespace, -A in all\n"
    )


def test_namespaces_are_those_of_kubectl(ask: Ask) -> None:
    cluster = FakeCluster(service(), service("code", "other"))
    assert "ml/chat" in ask(cluster, "status").stdout
    assert cluster.seen[-1] == SERVICES.format("ml")
    assert "other/code" in ask(cluster, "status", "-n", "other").stdout
    both = ask(cluster, "status", "-A").stdout
    assert cluster.seen[-1] == FLEET
    assert both.index("ml/chat") < both.index("other/code")
    assert "no SpeculativeInferenceService here" in ask(cluster, "status", "--context", "elsewhere").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--kubeconfig", "/no/such"), "no kubeconfig at /no/such: name the file", id="no file"),
        pytest.param(("--context", "nowhere"), "nowhere", id="no such context"),
    ],
)
def test_a_cluster_that_is_not_known_is_told_with_the_option(ask: Ask, words: tuple[str, ...], said: str) -> None:
    result = ask(FakeCluster(), "status", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_right_that_is_missing_is_told_in_the_servers_words(ask: Ask) -> None:
    cluster = FakeCluster(service())
    cluster.refused[SERVICES.format("ml")] = 403
    result = ask(cluster, "status")
    assert result.exit_code == 2
    assert "told so" in result.stderr


def test_a_cluster_without_the_kind_says_what_to_install(ask: Ask) -> None:
    cluster = FakeCluster()
    cluster.refused[SERVICES.format("ml")] = 404
    result = ask(cluster, "status")
    assert result.exit_code == 2
    assert "install its definition" in result.stderr
