"""What goes over the wire to the API server, and what its answers become."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from outrider import __version__
from outrider.adapters.kube import REPLICAS_MANAGER, Kube, as_patch, settle_proxy
from outrider.errors import Conflict, Forbidden, KubeError, NotFound, Unavailable

from .servers import Answer, Server, answer, hang, hang_up, serving

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "ml", "name": "chat"}}
STORED = {**DEPLOYMENT, "metadata": {"namespace": "ml", "name": "chat", "uid": "d-1"}}


@asynccontextmanager
async def kube(
    give: Answer, timeout_s: float = 60.0, may_write: Callable[[], bool] = lambda: True
) -> AsyncIterator[tuple[Kube, Server]]:
    """A connection to an API server that gives this answer."""
    async with serving(give) as server:
        configuration = Configuration()
        configuration.host = server.url
        configuration.api_key["BearerToken"] = "bearer token-of-outrider"
        one = Kube(ApiClient(configuration), timeout_s=timeout_s, may_write=may_write)
        try:
            yield one, server
        finally:
            await one.close()


def refusal(status: int, message: str = "told so") -> Answer:
    return answer(status, {"kind": "Status", "message": message, "code": status})


class TestRequests:
    @pytest.mark.parametrize(
        ("api_version", "kind", "path"),
        [
            pytest.param("v1", "Secret", "/api/v1/namespaces/ml/secrets/chat", id="core"),
            pytest.param("v1", "ConfigMap", "/api/v1/namespaces/ml/configmaps/chat", id="core, two words"),
            pytest.param("v1", "ResourceQuota", "/api/v1/namespaces/ml/resourcequotas/chat", id="quota"),
            pytest.param("apps/v1", "Deployment", "/apis/apps/v1/namespaces/ml/deployments/chat", id="apps"),
            pytest.param(
                "policy/v1",
                "PodDisruptionBudget",
                "/apis/policy/v1/namespaces/ml/poddisruptionbudgets/chat",
                id="policy",
            ),
            pytest.param(
                "keda.sh/v1alpha1", "ScaledObject", "/apis/keda.sh/v1alpha1/namespaces/ml/scaledobjects/chat", id="KEDA"
            ),
        ],
    )
    async def test_paths(self, api_version: str, kind: str, path: str) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            assert await one.get(api_version, kind, "ml", "chat") == STORED
        assert (server.asked[0].method, server.asked[0].path) == ("GET", path)

    async def test_every_call_says_who_asks(self) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            await one.get("apps/v1", "Deployment", "ml", "chat")
        assert server.asked[0].headers["Authorization"] == "bearer token-of-outrider"
        assert server.asked[0].headers["User-Agent"] == f"outrider/{__version__}"

    async def test_apply_takes_over_fields_strictly_and_under_our_name(self) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            assert await one.apply(DEPLOYMENT) == STORED
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("PATCH", "/apis/apps/v1/namespaces/ml/deployments/chat")
        assert asked.query == {"fieldManager": "outrider", "force": "true", "fieldValidation": "Strict"}
        assert asked.headers["Content-Type"].partition(";")[0] == "application/apply-patch+yaml"
        assert asked.body == DEPLOYMENT

    @pytest.mark.parametrize("text", ["\U0001f600", "\x7f", "\x85", "\u2028", "\ufeff", '\t\n"\\', "\\u0041", "ü"])
    def test_the_patch_of_an_apply_says_the_same_as_yaml_and_as_json(self, text: str) -> None:
        manifest = {**DEPLOYMENT, "data": {"key": text}}
        assert yaml.safe_load(as_patch(manifest)) == manifest
        assert json.loads(as_patch(manifest)) == manifest

    async def test_apply_under_the_second_manager(self) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            await one.apply(DEPLOYMENT, manager=REPLICAS_MANAGER)
        assert server.asked[0].query["fieldManager"] == "outrider-replicas"

    async def test_status_is_a_path_of_its_own(self) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            await one.apply(DEPLOYMENT, subresource="status")
        assert server.asked[0].path == "/apis/apps/v1/namespaces/ml/deployments/chat/status"

    async def test_a_dry_run_says_so(self) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            await one.apply(DEPLOYMENT, manager="outrider-preflight", dry_run=True)
        assert server.asked[0].query == {
            "fieldManager": "outrider-preflight",
            "force": "true",
            "fieldValidation": "Strict",
            "dryRun": "All",
        }

    async def test_a_kind_of_the_whole_cluster_has_no_namespace_in_its_path(self) -> None:
        async with kube(answer(body=STORED)) as (one, server):
            await one.get("v1", "Namespace", None, "ml")
        assert server.asked[0].path == "/api/v1/namespaces/ml"

    async def test_create(self) -> None:
        async with kube(answer(201, STORED)) as (one, server):
            assert await one.create(DEPLOYMENT) == STORED
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("POST", "/apis/apps/v1/namespaces/ml/deployments")
        assert asked.query == {"fieldManager": "outrider"}
        assert asked.body == DEPLOYMENT

    async def test_replace_is_of_the_version_that_was_read(self) -> None:
        found = {**STORED, "metadata": {**STORED["metadata"], "resourceVersion": "7"}}  # type: ignore[dict-item]
        async with kube(answer(200, STORED)) as (one, server):
            assert await one.replace(found) == STORED
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("PUT", "/apis/apps/v1/namespaces/ml/deployments/chat")
        assert asked.query == {"fieldManager": "outrider"}
        assert asked.body["metadata"]["resourceVersion"] == "7"

    async def test_delete_names_the_very_object(self) -> None:
        async with kube(answer(body={"kind": "Status"})) as (one, server):
            await one.delete("apps/v1", "Deployment", "ml", "chat", "d-1")
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("DELETE", "/apis/apps/v1/namespaces/ml/deployments/chat")
        assert asked.body["preconditions"] == {"uid": "d-1"}

    @pytest.mark.parametrize("status", [404, 409])
    async def test_deleting_what_is_gone_or_was_replaced_is_done_already(self, status: int) -> None:
        async with kube(refusal(status)) as (one, _):
            await one.delete("apps/v1", "Deployment", "ml", "chat", "d-1")

    @pytest.mark.parametrize(
        ("namespace", "selector", "path", "query"),
        [
            pytest.param(None, "", "/api/v1/pods", {}, id="of all namespaces"),
            pytest.param(
                "ml",
                "app=chat",
                "/api/v1/namespaces/ml/pods",
                {"labelSelector": "app=chat"},
                id="some of one namespace",
            ),
        ],
    )
    async def test_list(self, namespace: str | None, selector: str, path: str, query: dict[str, str]) -> None:
        async with kube(answer(body={"items": [STORED]})) as (one, server):
            assert await one.list("v1", "Pod", namespace, selector) == [STORED]
        assert (server.asked[0].path, server.asked[0].query) == (path, query)

    async def test_what_is_not_there_is_none(self) -> None:
        async with kube(refusal(404)) as (one, _):
            assert await one.get("v1", "Secret", "ml", "chat-admin") is None


class TestServes:
    @pytest.mark.parametrize(
        ("give", "served"),
        [
            pytest.param(answer(body={"resources": [{"kind": "ScaledObject"}]}), True, id="the kind is there"),
            pytest.param(
                answer(body={"resources": [{"kind": "ScaledJob"}]}), False, id="the group is, the kind is not"
            ),
            pytest.param(refusal(404), False, id="the group is not there"),
        ],
    )
    async def test_what_is_installed(self, give: Answer, served: bool) -> None:
        async with kube(give) as (one, server):
            assert await one.serves("keda.sh/v1alpha1", "ScaledObject") is served
        assert server.asked[0].path == "/apis/keda.sh/v1alpha1"

    async def test_it_is_not_asked_in_every_pass(self) -> None:
        async with kube(answer(body={"resources": [{"kind": "ScaledObject"}]})) as (one, server):
            for _ in range(5):
                assert await one.serves("keda.sh/v1alpha1", "ScaledObject")
        assert len(server.asked) == 1

    async def test_no_answer_is_not_taken_for_a_no(self) -> None:
        async with kube(refusal(503)) as (one, server):
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await one.serves("keda.sh/v1alpha1", "ScaledObject")
        assert len(server.asked) == 2


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "error", "reason"),
        [
            pytest.param(400, KubeError, "ApplyRefused", id="bad request"),
            pytest.param(401, Forbidden, "Forbidden", id="not logged in"),
            pytest.param(403, Forbidden, "Forbidden", id="a right is missing"),
            pytest.param(404, NotFound, "NotFound", id="not there"),
            pytest.param(409, Conflict, "Conflict", id="somebody else was first"),
            pytest.param(422, KubeError, "ApplyRefused", id="not valid"),
            pytest.param(429, Unavailable, "APIServerUnavailable", id="too many requests"),
            pytest.param(500, Unavailable, "APIServerUnavailable", id="its own fault"),
            pytest.param(503, Unavailable, "APIServerUnavailable", id="not ready"),
            pytest.param(504, Unavailable, "APIServerUnavailable", id="etcd is slow"),
        ],
    )
    async def test_each_status_becomes_what_the_caller_should_do(
        self, status: int, error: type[KubeError], reason: str
    ) -> None:
        async with kube(refusal(status)) as (one, _):
            with pytest.raises(KubeError) as caught:
                await one.apply(DEPLOYMENT)
        assert type(caught.value) is error
        assert (caught.value.status, caught.value.reason) == (status, reason)
        assert caught.value.message == "PATCH /apis/apps/v1/namespaces/ml/deployments/chat: told so"

    async def test_a_namespace_that_ends_is_no_missing_right(self) -> None:
        said = (
            'services "chat" is forbidden: unable to create new content in namespace ml because it is being terminated'
        )
        async with kube(refusal(403, said)) as (one, _):
            with pytest.raises(KubeError) as caught:
                await one.apply(DEPLOYMENT)
        assert (type(caught.value), caught.value.reason) == (KubeError, "NamespaceTerminating")

    async def test_a_field_that_the_kind_does_not_have_is_no_fault_of_the_api_server(self) -> None:
        said = "failed to create typed patch object (ml/chat; apps/v1): .spec.x: field not declared in schema"
        async with kube(refusal(500, said)) as (one, _):
            with pytest.raises(KubeError) as caught:
                await one.apply(DEPLOYMENT)
        assert (type(caught.value), caught.value.status, caught.value.reason) == (KubeError, 422, "ApplyRefused")
        assert said in caught.value.message

    async def test_a_kind_that_is_about_to_go_is_no_right_that_is_missing(self) -> None:
        said = "scaledobjects is forbidden: create not allowed while custom resource definition is terminating"
        async with kube(refusal(403, said)) as (one, _):
            with pytest.raises(KubeError) as caught:
                await one.apply(DEPLOYMENT)
        assert type(caught.value) is NotFound

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [({"Retry_After": "7"}, 7.0), ({"Retry_After": "Fri, 15 Jan 2027 08:00:00 GMT"}, None), ({}, None)],
    )
    async def test_how_long_to_wait(self, header: dict[str, str], seconds: float | None) -> None:
        async with kube(answer(429, {"message": "later"}, **header)) as (one, _):
            with pytest.raises(Unavailable) as caught:
                await one.get("v1", "Secret", "ml", "chat")
        assert caught.value.retry_after_s == seconds

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param("<html>Bad Gateway</html>", "<html>Bad Gateway</html>", id="a proxy's page"),
            pytest.param("", "", id="nothing"),
            pytest.param('["a list"]', '["a list"]', id="another form"),
            pytest.param('{"message": null}', "None", id="no message"),
            pytest.param("x" * 5000, "x" * 200, id="very long"),
        ],
    )
    async def test_an_error_in_another_form_is_shown_as_it_is(self, text: str, message: str) -> None:
        async with kube(answer(502, text=text)) as (one, _):
            with pytest.raises(Unavailable) as caught:
                await one.get("v1", "Secret", "ml", "chat")
        assert caught.value.message == f"GET /api/v1/namespaces/ml/secrets/chat: {message}"

    @pytest.mark.parametrize("text", ["<html>Please log in</html>", "", '["a list"]'])
    async def test_a_success_that_is_no_object_comes_from_something_else(self, text: str) -> None:
        """A proxy's or a captive portal's page; not a fault of ours."""
        async with kube(answer(200, text=text)) as (one, _):
            with pytest.raises(Unavailable, match="the answer is no JSON object"):
                await one.get("v1", "Secret", "ml", "chat")

    async def test_no_answer_in_time(self) -> None:
        async with kube(hang, timeout_s=0.1) as (one, _):
            with pytest.raises(Unavailable, match=r"no answer from the API server \(TimeoutError\)") as caught:
                await one.get("v1", "Secret", "ml", "chat")
        assert (caught.value.reason, caught.value.status) == ("APIServerUnreachable", 0)
        assert caught.value.__cause__ is not None

    async def test_a_connection_that_is_cut(self) -> None:
        async with kube(hang_up) as (one, _):
            with pytest.raises(Unavailable, match="no answer from the API server"):
                await one.get("v1", "Secret", "ml", "chat")

    async def test_nobody_listens(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            configuration: Any = Configuration()
            configuration.host = f"http://127.0.0.1:{unused.getsockname()[1]}"
            one = Kube(ApiClient(configuration))
            with pytest.raises(Unavailable, match="no answer from the API server"):
                await one.get("v1", "Secret", "ml", "chat")
            await one.close()


class TestOneThatIsNotTheActiveOneAnyMore:
    @pytest.mark.parametrize("verb", ["apply", "create", "replace", "delete"])
    async def test_it_sends_no_write(self, verb: str) -> None:
        async with kube(answer(body=STORED), may_write=lambda: False) as (one, server):
            arguments = ("apps/v1", "Deployment", "ml", "chat", "d-1") if verb == "delete" else (DEPLOYMENT,)
            with pytest.raises(Unavailable, match="not sent, for this operator's lease has run out") as caught:
                await getattr(one, verb)(*arguments)
        assert caught.value.reason == "NotActive"
        assert server.asked == []

    async def test_it_may_read(self) -> None:
        async with kube(answer(body=STORED), may_write=lambda: False) as (one, _):
            assert await one.get("apps/v1", "Deployment", "ml", "chat") == STORED


class TestProxy:
    @pytest.mark.parametrize(
        ("environment", "proxy"),
        [
            pytest.param({}, None, id="none"),
            pytest.param({"https_proxy": "http://127.0.0.9:3128"}, "http://127.0.0.9:3128", id="one"),
            pytest.param({"http_proxy": "http://127.0.0.9:3128"}, None, id="of another scheme"),
            pytest.param({"https_proxy": "http://127.0.0.9:3128", "no_proxy": "127.0.0.1"}, None, id="not for us"),
        ],
    )
    def test_the_environment_is_asked_for_it_once_and_not_for_every_call(
        self, environment: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        configuration = Configuration()
        configuration.host = "https://127.0.0.1:6443"
        settle_proxy(configuration)
        assert configuration.proxy == proxy
        assert configuration.client_session_kwargs == {"trust_env": False}

    async def test_a_proxy_that_a_kubeconfig_names_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("https_proxy", "http://127.0.0.9:3128")
        configuration = Configuration()
        configuration.host, configuration.proxy = "https://127.0.0.1:6443", "http://127.0.0.8:3128"
        settle_proxy(configuration)
        assert configuration.proxy == "http://127.0.0.8:3128"


@pytest.mark.failure(
    "API server",
    "our token is rotated",
    ends="within the minute in which the old one is still good",
    guard="adapters/kube.py:Kube._answer",
)
async def test_a_token_that_the_kubelet_renews_is_read_again(tmp_path: Path) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("old")
    authority.write_text("none: the server here speaks plain HTTP")
    async with serving(answer(body=STORED)) as server:
        place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
        loader = InClusterConfigLoader(token, authority, environ=place)
        loader._load_config()
        loader.host, loader.ssl_ca_cert = server.url, None
        configuration = Configuration()
        loader._set_config(configuration)
        one = Kube(ApiClient(configuration))
        try:
            await one.get("apps/v1", "Deployment", "ml", "chat")
            token.write_text("new")
            loader.token_expires_at = datetime.now()  # a minute later
            await one.get("apps/v1", "Deployment", "ml", "chat")
        finally:
            await one.close()
    assert [asked.headers["Authorization"] for asked in server.asked] == ["bearer old", "bearer new"]
