"""The observer's looks: what it takes from whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from demo.neighbours import NoAnswer, ServiceGone, gather_known, parse_samples
from demo.observer import Observer
from tests.unit.demo.builders import resource, scaled_object

SERVICE = "serving.outrider.dev/service"


def named(manifest: dict[str, Any], name: str = "chat") -> dict[str, Any]:
    return {**manifest, "metadata": {"name": name, "uid": f"uid-{name}", **manifest.get("metadata", {})}}


def ready_pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "labels": {SERVICE: "chat", "pod-template-hash": "t"}},
        "status": {"podIP": f"ip-{name}", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class FakeApi:
    """Objects by the last part of their collection's path."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {
            "pods": [ready_pod("chat-1"), ready_pod("chat-2")],
            "deployments": [named({"spec": {"replicas": 2}})],
            "speculativeinferenceservices": [named(resource())],
            "scaledobjects": [named(scaled_object(32))],
            "horizontalpodautoscalers": [named({}, "keda-hpa-chat")],
            "configmaps": [],
        }

    async def get(self, path: str) -> dict[str, Any]:
        return {"items": self.objects[path.partition("?")[0].rpartition("/")[2]]}


class FakeEngines:
    """Two generations among the pods."""

    async def schedule(self, service: str, address: str) -> dict[str, Any]:
        if address == "ip-chat-2":
            return {"generation": 3, "schedule": [[1, 16, 3], [17, 256, 1]]}
        return {"generation": 2, "schedule": [[1, 256, 3]]}


class FakePrometheus:
    """Answers each question with the same number, but for one that it cannot answer."""

    async def by_service(self, query: str) -> dict[str, float]:
        if query.startswith("histogram_quantile"):
            raise NoAnswer("no histogram yet")
        return {"chat": 8.0}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
async def observer(api: FakeApi) -> Observer:
    found = Observer(api, FakeEngines(), FakePrometheus(), "ml", ["chat"])  # type: ignore[arg-type]
    await found.begin()
    return found


async def test_a_round_puts_objects_engines_and_metrics_together(observer: Observer) -> None:
    seen = observer.timeline["chat"][-1]
    assert (seen.replicas, seen.ready, seen.target) == (2, 2, 32)
    assert (seen.generation, str(seen.schedule), seen.acknowledged) == (3, "1-16:3 17-256:1", 1)
    assert (seen.in_flight, seen.batch, seen.num_speculative_tokens) == (16.0, 8.0, 3)
    assert seen.tpot_p95_s is None, "one answer that is missing leaves the others"
    assert seen.as_dict()["schedule"] == "1-16:3 17-256:1"


async def test_uids_generations_and_numbers_are_followed(observer: Observer, api: FakeApi) -> None:
    api.objects["deployments"][0]["spec"]["replicas"] = 3
    api.objects["scaledobjects"][0] = named(scaled_object(20))
    api.objects["horizontalpodautoscalers"][0]["metadata"]["uid"] = "another"
    await observer.look()
    facts = observer.facts["chat"]
    assert [number for _, number in facts.replicas] == [2, 3]
    assert [target for _, target in facts.targets] == [32, 20]
    assert facts.hpa_uids == {"uid-keda-hpa-chat", "another"}
    assert facts.scaled_object_uids == {"so-1"}
    assert facts.generations == {1}


async def test_an_object_that_is_not_there_makes_the_look_a_missed_one(observer: Observer, api: FakeApi) -> None:
    api.objects["scaledobjects"] = []
    with pytest.raises(NoAnswer, match="service chat"):
        await observer.look()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(None, id="gone"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, id="going"),
        pytest.param({"uid": "another"}, id="made anew"),
    ],
)
async def test_a_service_that_somebody_deletes_ends_the_watching(
    observer: Observer, api: FakeApi, changes: dict[str, str] | None
) -> None:
    if changes is None:
        api.objects["speculativeinferenceservices"] = []
    else:
        api.objects["speculativeinferenceservices"][0]["metadata"].update(changes)
    watching = asyncio.create_task(observer._every(0.0, observer.look))
    await asyncio.wait([watching], timeout=60)
    with pytest.raises(ServiceGone, match="service chat was deleted"):
        watching.result()


async def test_another_service_in_the_namespace_is_none_of_its_business(observer: Observer, api: FakeApi) -> None:
    api.objects["speculativeinferenceservices"].append(named({}, "guest"))
    await observer.look()
    assert observer.facts.keys() == {"chat"}


async def test_addresses_are_those_of_ready_pods(observer: Observer, api: FakeApi) -> None:
    api.objects["pods"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await observer.look()
    assert observer.addresses("chat") == ["ip-chat-2"]


def test_samples_of_a_metrics_page() -> None:
    text = '# TYPE a counter\na_total{engine="0",position="1"} 3.0\nb_total{engine="0"} 4.0\nplain 5.0\n'
    assert parse_samples(text, "a_") == [("a_total", {"engine": "0", "position": "1"}, 3.0)]


async def test_only_missing_answers_are_forgiven() -> None:
    async def answer() -> int:
        return 1

    async def silent() -> int:
        raise NoAnswer("gone")

    async def wrong() -> int:
        raise ZeroDivisionError

    assert await gather_known(answer(), silent()) == [1, None]
    with pytest.raises(ZeroDivisionError):
        await gather_known(answer(), wrong())
