"""``outrider status``: what it says, and the statuses that scripts rely on."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
import yaml

from outrider.api.status import CapacityStatus
from outrider.cli.status_view import LIMITS
from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import CANDIDATE, CONDITIONS, FLEET, SERVICES, FakeCluster, service

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
        "20 requests in flight a replica; the limit comes from the TPOT objective",
        "3 ready of 3 wanted (bounds 1-6); the load needs 3",
        "TPOT 40 ms for 95 % of the requests",
        "schedule 1-256:2 → 1-24:3 25-256:1",
        "at batch 14 K 2→3: 8 % more",
        "Ready: EnginesServe",
    ):
        assert said in result.stdout
    assert "MetricsAvailable" not in result.stdout, "what is as it should be is not said"


def test_a_candidate_is_told_with_its_figures(ask: Ask) -> None:
    result = ask(FakeCluster(service(changes={"status.revisions": CANDIDATE})), "status", "chat")
    assert result.exit_code == 0, "the service answers as before"
    for said in (
        "revision     0f3c1d7a22",
        "9be24c1177, running for ",
        "token goodput 3.1 % beyond the stable engines' (-1.0 to 7.2 %)",
        "heard in 12 of 40 windows",
    ):
        assert said in result.stdout


def test_without_a_candidate_the_end_of_the_last_one_is_told(ask: Ask) -> None:
    past = {name: value for name, value in CANDIDATE.items() if name != "candidate"}
    result = ask(FakeCluster(service(changes={"status.revisions": past})), "status", "chat")
    assert "candidate 77aa01bb33 was withdrawn " in result.stdout


def test_revisions_of_another_form_are_left_out(ask: Ask) -> None:
    result = ask(FakeCluster(service(changes={"status.revisions": {"stable": 7}})), "status", "chat")
    assert result.exit_code == 0, result.output
    assert "revision" not in result.stdout


@pytest.mark.parametrize("limit", get_args(CapacityStatus.model_fields["limited_by"].annotation)[0].__args__)
def test_whatever_limits_the_capacity_is_told_in_words(ask: Ask, limit: str) -> None:
    result = ask(FakeCluster(service(changes={"status.capacity.limitedBy": limit})), "status", "chat")
    assert f"20 requests in flight a replica; the limit comes from {LIMITS[limit]}" in result.stdout


def test_a_condition_that_is_not_as_it_should_be_is_told_with_its_message(ask: Ask) -> None:
    result = ask(FakeCluster(service(changes={"status.conditions": CRASHED})), "status", "chat")
    assert result.exit_code == 1
    assert "bad Ready: EngineCrashLoop\n    exit status 1\n  bad EngineReady: EngineCrashLoop\n" in result.stdout
    assert result.stdout.count("exit status 1") == 1, "what two conditions say is said once"


def test_a_condition_that_adds_to_what_was_told_does_not_repeat_it(ask: Ask) -> None:
    stuck = {"type": "RolloutProgressing", "status": "False", "reason": "EngineCrashLoop",
             "message": "the update is stuck: exit status 1"}  # fmt: skip
    result = ask(FakeCluster(service(changes={"status.conditions": [*CRASHED, stuck]})), "status", "chat")
    assert "bad RolloutProgressing: EngineCrashLoop\n    the update is stuck: as above\n" in result.stdout


def test_a_service_without_traffic_is_ready_and_the_details_say_what_is_not_known(ask: Ask) -> None:
    unknown = {"type": "SpeculationHealthy", "status": "Unknown", "reason": "InsufficientData", "message": "too few"}
    cluster = FakeCluster(service(changes={"status.conditions": [*CONDITIONS, unknown]}))
    assert "ml/chat  Ready  " in ask(cluster, "status").stdout
    assert "note SpeculationHealthy: InsufficientData\n    too few\n" in ask(cluster, "status", "chat").stdout


def test_a_service_that_starts_is_not_told_as_a_fault(ask: Ask) -> None:
    starting = [{**one, "reason": "Starting", "message": "engines are loading"} for one in CRASHED]
    result = ask(FakeCluster(service(changes={"status.conditions": starting})), "status", "chat")
    assert result.exit_code == 1
    assert "note Ready: Starting\n    engines are loading\n  note EngineReady: Starting\n" in result.stdout


def test_the_parts_of_a_long_reason_stand_on_lines_of_their_own(ask: Ask) -> None:
    change = {"time": "2026-09-21T13:00:00Z", "kind": "Target", "from": "32", "to": "48"}
    reason = "TPOT: with 239 requests in flight a token takes 40 ms; room for bursts leaves 171; 48 of 154 for now"
    result = ask(FakeCluster(service(changes={"status.history": [{**change, "reason": reason}]})), "status", "chat")
    lines = [line.strip() for line in result.stdout.splitlines()]
    at = lines.index("TPOT: with 239 requests in flight a token takes 40 ms")
    assert lines[at + 1 : at + 3] == ["room for bursts leaves 171", "48 of 154 for now"]


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


@pytest.mark.parametrize(
    ("there", "name", "said"),
    [
        pytest.param(("chat",), "chta", "did you mean chat?", id="a slip"),
        pytest.param(("chat", "code"), "coda", "did you mean code?", id="a slip among several"),
        pytest.param(("chat",), "search", "there is only chat", id="one other"),
        pytest.param(("chat", "code"), "search", "there are chat, code", id="two others"),
        pytest.param(tuple("abcde"), "search", "there are a, b, c, d, e", id="as many as are named"),
        pytest.param(tuple("abcdefg"), "search", "there are a, b, c, d, e and 2 more", id="more than are named"),
        pytest.param((), "search", "there is none at all", id="none"),
    ],
)
def test_a_name_that_is_not_there_is_three_and_names_those_that_are(
    ask: Ask, there: tuple[str, ...], name: str, said: str
) -> None:
    result = ask(FakeCluster(*map(service, there)), "status", name)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        f"outrider: namespace ml has no service {name}: {said} (-n NAME looks in another namespace)\n"
    )


def test_a_name_that_is_nowhere_is_told_with_the_namespaces_of_those_that_are_there(ask: Ask) -> None:
    result = ask(FakeCluster(service(), service("code", "other")), "status", "cdoe", "-A")
    assert result.exit_code == 3
    assert result.stderr == "outrider: no namespace has a service cdoe: did you mean other/code?\n"


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
