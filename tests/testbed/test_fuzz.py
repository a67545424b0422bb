"""Generated resources on a real API server: it agrees with us on each, in the same words where a rule
refuses, and takes every child of those that we take.

The short form of `make fuzz`, which tries twenty thousand.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from outrider.adapters.kube import APPLY_PATCH, as_patch
from tests.fuzz.outcome import outcome
from tests.fuzz.strategies import beside_rules, bodies
from tests.testbed.cluster import Cluster
from tests.unit.api.bodies import ROOT, Body

_PLURALS = {"NetworkPolicy": "networkpolicies"}
_CALLS_AT_ONCE = 8


class DryRun:
    """Asks one API server what it would do, over connections that stay open."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._server, self._context = cluster.api.server, _ssl_context(cluster.kubeconfig, folder)
        self._session = self._loop.run_until_complete(self._connect())
        self._taken: set[str] = set()

    async def _connect(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=_CALLS_AT_ONCE)
        return aiohttp.ClientSession(connector=connector, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    def refusals(self, manifests: Sequence[Mapping[str, Any]]) -> list[str]:
        """What the server says against each that it would not take; what it took once is not asked again."""
        fresh = {json.dumps(manifest, sort_keys=True): manifest for manifest in manifests}
        fresh = {text: manifest for text, manifest in fresh.items() if text not in self._taken}
        answers = self._loop.run_until_complete(self._all(list(fresh.values())))
        self._taken.update(text for text, answer in zip(fresh, answers, strict=True) if not answer)
        return [answer for answer in answers if answer]

    async def _all(self, manifests: list[Mapping[str, Any]]) -> list[str]:
        return await asyncio.gather(*(self._apply(manifest) for manifest in manifests))

    async def _apply(self, manifest: Mapping[str, Any]) -> str:
        url = self._server + _path(manifest)
        query = {"fieldManager": "fuzz", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
        headers = {"Content-Type": APPLY_PATCH}
        body = as_patch(manifest)
        async with self._session.patch(url, params=query, data=body, headers=headers) as response:
            answer: dict[str, Any] = await response.json()
            return "" if response.status < 300 else f"{manifest['kind']}: {answer.get('message', answer)}"


def _path(manifest: Mapping[str, Any]) -> str:
    group = manifest["apiVersion"]
    plural = _PLURALS.get(manifest["kind"], manifest["kind"].lower() + "s")
    root = "api" if "/" not in group else "apis"
    meta = manifest["metadata"]
    return f"/{root}/{group}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


def _ssl_context(kubeconfig: Path, folder: Path) -> ssl.SSLContext:
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    user, server = config["users"][0]["user"], config["clusters"][0]["cluster"]
    pair = folder / "administrator.pem"
    pair.touch(mode=0o600)
    pair.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    authority = base64.b64decode(server["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    context.load_cert_chain(pair)
    return context


@pytest.fixture(scope="module")
def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DryRun]:
    """A whole cluster that knows our kind, PodMonitors, and the namespaces of the examples."""
    crd = Path(__file__).with_name("pod_monitor_crd.yaml")
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"), "-f", str(crd))
    for name in ("speculativeinferenceservices.serving.outrider.dev", "podmonitors.monitoring.coreos.com"):
        cluster.wait_for_definition(name)
    for namespace in ("ml", "default"):
        cluster.kubectl("create", "namespace", namespace, check=False)
    asked = DryRun(cluster, tmp_path_factory.mktemp("fuzz"))
    yield asked
    asked.close()


def tried(request: pytest.FixtureRequest, resources: SearchStrategy[Body], one: Callable[[Body], None]) -> None:
    """Try ``one`` on as many resources as the command line asks for."""
    limits = settings(
        max_examples=request.config.getoption("--fuzz-examples"),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    limits(given(resources)(one))()


def test_the_api_server_agrees_and_takes_all_children(request: pytest.FixtureRequest, server: DryRun) -> None:
    tally: Counter[str] = Counter()

    def one(body: Body) -> None:
        found = outcome(body)
        said = server.refusals([body])
        if found.refused_by == "schema":
            assert said, f"we refuse what the API server takes: {found.message}"
        else:
            assert not said, "the API server refuses what we take"
        assert not server.refusals(found.children)
        tally[found.refused_by or "rendered"] += 1

    tried(request, bodies(), one)
    assert tally["rendered"] > 0.15 * tally.total(), tally


def test_a_rule_says_the_same_at_the_api_server(request: pytest.FixtureRequest, server: DryRun) -> None:
    verdicts: Counter[bool] = Counter()

    def one(body: Body) -> None:
        found, told = outcome(body), " ".join(server.refusals([body]))
        refused = found.refused_by == "schema"
        assert bool(told) == refused, told or found.message
        for sentence in found.message.split("; ") if refused else ():
            assert sentence.split(": ", 1)[-1] in told
        verdicts[refused] += 1

    tried(request, beside_rules(), one)
    assert min(verdicts[True], verdicts[False]) > 0.15 * verdicts.total(), verdicts
