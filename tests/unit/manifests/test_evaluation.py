"""The Job that evaluates a candidate: what it is made of, and what a template may not have."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.api.defaults import resolve
from outrider.errors import InvalidSpec
from outrider.manifests import evaluation
from outrider.manifests.evaluation import Asked
from outrider.manifests.meta import SERVICE_LABEL, Manifest
from outrider.manifests.network_policy import network_policy
from outrider.manifests.service import service
from tests.unit.api.bodies import resource

QUIZ: dict[str, Any] = {"name": "quiz", "image": "quiz:1"}
DEPLOYMENT = {"metadata": {"name": "chat-candidate", "uid": "deployment-uid"}}
ASKED = Asked("3f9c2a71b0", "pod-uid", "10.0.0.9", "10.0.0.1", DEPLOYMENT)


def changes(template: dict[str, Any] | None = None, **quality: Any) -> dict[str, Any]:
    """Those of a resource whose candidates are evaluated."""
    asked = {"template": template or {"spec": {"containers": [QUIZ]}}, **quality}
    return {"spec.rollout": {"policy": "Canary", "quality": asked}}


def made(template: dict[str, Any] | None = None, asked: Asked = ASKED, **more: Any) -> Manifest:
    """The Job of the minimal example."""
    one = resource(changes(template) | more)
    evaluation.check(one)
    return evaluation.job(one, resolve(one.spec), asked)


def pod(spec: dict[str, Any]) -> Manifest:
    """The spec of its pod, with parts of a user's own."""
    found: Manifest = made({"spec": {"containers": [QUIZ], **spec}})["spec"]["template"]["spec"]
    return found


def container(**fields: Any) -> Manifest:
    """Its container, with fields of a user's own."""
    (found,) = pod({"containers": [{**QUIZ, **fields}]})["containers"]
    assert isinstance(found, dict)
    return found


def variables(found: Manifest) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in found["env"]}


def test_it_is_tried_once_and_goes_with_the_candidate_s_deployment() -> None:
    job = made()
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 1800
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Deployment", "deployment-uid")
    assert "blockOwnerDeletion" not in owner, "it would take a right on the Deployment's finalizers"


def test_it_knows_whom_to_ask_for_what_and_where_the_result_goes() -> None:
    assert variables(container()) == {
        "OUTRIDER_CANDIDATE_URL": "http://10.0.0.9:8000",
        "OUTRIDER_STABLE_URL": "http://10.0.0.1:8000",
        "OUTRIDER_MODEL": "chat",
        "OUTRIDER_SERVICE": "chat",
        "OUTRIDER_REVISION": "3f9c2a71b0",
        "OUTRIDER_RESULT": "/dev/termination-log",
    }
    own = container(env=[{"name": "SHOTS", "value": "5"}], terminationMessagePath="/tmp/result")
    assert variables(own) | {"SHOTS": "5", "OUTRIDER_RESULT": "/tmp/result"} == variables(own)


def test_an_address_with_colons_stands_in_brackets() -> None:
    asked = Asked("3f9c2a71b0", "pod-uid", "fd00::9", "10.0.0.1", DEPLOYMENT)
    (one,) = made(asked=asked)["spec"]["template"]["spec"]["containers"]
    assert variables(one)["OUTRIDER_CANDIDATE_URL"] == "http://[fd00::9]:8000"


def test_its_pod_is_as_restricted_as_an_engine_s_and_has_no_token() -> None:
    spec = pod({"initContainers": [{"name": "fetch", "image": "fetch:1"}]})
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("chat-engine", False)
    assert spec["restartPolicy"] == "Never"
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 1000)
    for one in (*spec["containers"], *spec["initContainers"]):
        assert one["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_nothing_takes_its_pod_for_an_engine() -> None:
    labels = made({"metadata": {"labels": {"team": "chat"}}, "spec": {"containers": [QUIZ]}})
    found = labels["spec"]["template"]["metadata"]["labels"]
    assert SERVICE_LABEL not in found
    assert (found["team"], found["serving.outrider.dev/evaluates"]) == ("chat", "chat")


def test_another_pod_or_another_template_is_another_job() -> None:
    other_pod = Asked("3f9c2a71b0", "other-uid", "10.0.0.9", "10.0.0.1", DEPLOYMENT)
    elsewhere = Asked("3f9c2a71b0", "pod-uid", "10.0.0.9", "10.0.0.2", DEPLOYMENT)
    jobs = [made(), made(asked=other_pod), made({"spec": {"containers": [{**QUIZ, "image": "quiz:2"}]}})]
    assert len({job["metadata"]["name"] for job in jobs}) == 3
    assert made(asked=elsewhere)["metadata"]["name"] == jobs[0]["metadata"]["name"]


def test_a_long_name_is_cut_where_a_job_s_must_end() -> None:
    name = "a" * 45 + "-very-long"[:9]
    found = made(**{"metadata.name": name})["metadata"]["name"]
    assert len(found) <= 63
    assert found.startswith("a" * 45)


def test_secrets_of_the_engine_s_registry_serve_it_too_unless_it_has_its_own() -> None:
    engine = {"spec.engine": {"imagePullSecrets": ["registry"]}}
    assert made(**engine)["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    own = {"spec": {"containers": [QUIZ], "imagePullSecrets": [{"name": "own"}]}}
    assert made(own, **engine)["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "own"}]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"serviceAccountName": "admin"}, "spec.serviceAccountName", id="another account"),
        pytest.param({"automountServiceAccountToken": True}, "no token of the API server", id="a token"),
        pytest.param({"hostNetwork": True}, "spec.hostNetwork", id="the node's network"),
        pytest.param({"hostPID": True}, "spec.hostPID", id="the node's processes"),
        pytest.param({"nodeName": "gpu-0"}, "goes past the scheduler", id="past the scheduler"),
        pytest.param({"restartPolicy": "OnFailure"}, "one evaluation gives one result", id="a second try"),
        pytest.param({"activeDeadlineSeconds": 9}, "spec.rollout.quality.maxMinutes", id="a time of its own"),
        pytest.param({"securityContext": {"runAsUser": 0}}, "spec.securityContext.runAsUser", id="root"),
        pytest.param({"volumes": [{"name": "n", "hostPath": {"path": "/"}}]}, "hostPath", id="the node's files"),
        pytest.param(
            {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "serviceAccountToken",
            id="a token by a volume",
        ),
        pytest.param(
            {"containers": [{**QUIZ, "securityContext": {"privileged": True}}]}, "privileged", id="privileged"
        ),
        pytest.param({"containers": [{**QUIZ, "env": [{"name": "OUTRIDER_MODEL"}]}]}, "take another name", id="ours"),
        pytest.param({"containers": [{**QUIZ, "env": "A=b"}]}, "env must be a list", id="variables of another form"),
        pytest.param({"containers": [QUIZ, {**QUIZ, "name": "second"}]}, "one container", id="two containers"),
        pytest.param({"containers": []}, "one container", id="none"),
        pytest.param({"containers": [{"image": "quiz:1"}]}, "a name each", id="one without a name"),
        pytest.param(
            {"initContainers": [{"name": "x", "securityContext": {"privileged": True}}]}, "privileged", id="before it"
        ),
    ],
)
def test_what_would_open_the_pod_is_refused_by_its_path(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        pod(spec)
    assert refused.value.reason == "PodTemplateRefused"
    assert words in refused.value.message
    assert refused.value.message.startswith("spec.rollout.quality.template.spec.")


def test_labels_by_which_pods_are_told_apart_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"metadata\.labels: serving\.outrider\.dev/service"):
        made({"metadata": {"labels": {SERVICE_LABEL: "chat"}}, "spec": {"containers": [QUIZ]}})


def test_the_service_selects_both_tracks_or_the_stable_one_alone() -> None:
    one = resource()
    both, stable = (service(one, resolve(one.spec), candidate=candidate) for candidate in (True, False))
    assert both["spec"]["selector"] == {SERVICE_LABEL: "chat"}
    assert stable["spec"]["selector"] == {SERVICE_LABEL: "chat", "serving.outrider.dev/track": "stable"}


def test_where_few_may_ask_the_evaluation_may() -> None:
    closed = {"spec.networkPolicy": {"allowFrom": [{"podSelector": {"matchLabels": {"team": "chat"}}}]}}
    evaluates = {"podSelector": {"matchLabels": {"serving.outrider.dev/evaluates": "chat"}}}
    inference, *_ = network_policy(resource(closed | changes()), None)["spec"]["ingress"]
    assert evaluates in inference["from"]
    inference, *_ = network_policy(resource(closed), None)["spec"]["ingress"]
    assert evaluates not in inference["from"]
