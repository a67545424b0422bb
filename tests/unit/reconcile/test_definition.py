"""An operator does not write for a definition that would drop what it writes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from outrider.api.crd import custom_resource_definition
from outrider.errors import Forbidden
from outrider.reconcile.definition import AGAIN_S, MAX_SHOWN, NAME, REMEDY, fault, misfit

from .builders import unavailable
from .fakes import FakeKube, Manifest


def status_of(definition: Manifest) -> Manifest:
    found: Manifest = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


def spoilt(how: Callable[[Manifest], object]) -> Manifest:
    definition = copy.deepcopy(custom_resource_definition())
    how(definition)
    return definition


def test_the_definition_of_this_version_fits() -> None:
    assert misfit(custom_resource_definition()) is None


def test_a_definition_with_more_fields_than_this_version_writes_fits() -> None:
    assert misfit(spoilt(lambda one: status_of(one)["properties"].update(later={"type": "string"}))) is None


def test_a_definition_that_keeps_what_it_does_not_know_fits() -> None:
    def keeps(one: Manifest) -> None:
        status_of(one).clear()
        status_of(one).update({"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    assert misfit(spoilt(keeps)) is None


@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param(lambda one: status_of(one)["properties"].pop("history"), "it lacks status.history;", id="a field"),
        pytest.param(
            lambda one: status_of(one)["properties"]["tuning"]["properties"].pop("schedule"),
            "it lacks status.tuning.schedule;",
            id="a field further down",
        ),
        pytest.param(
            lambda one: status_of(one)["properties"]["history"]["items"]["properties"].pop("reason"),
            "it lacks status.history[].reason;",
            id="a field of a list's items",
        ),
        pytest.param(lambda one: status_of(one)["properties"].clear(), " more; ", id="many, of which some are named"),
        pytest.param(
            lambda one: one["spec"]["versions"][0].pop("subresources"), "has no status subresource", id="no status"
        ),
        pytest.param(
            lambda one: one["spec"]["versions"][0].update(served=False), "does not serve v1alpha1", id="not served"
        ),
        pytest.param(
            lambda one: one["spec"]["versions"][0].update(name="v1"), "does not serve v1alpha1", id="another version"
        ),
    ],
)
def test_another_definition_is_named_with_what_to_do(how: Callable[[Manifest], object], said: str) -> None:
    sentence = misfit(spoilt(how))
    assert sentence is not None
    assert NAME in sentence
    assert said in sentence
    assert sentence.endswith(REMEDY)
    assert sentence.count("status.") <= MAX_SHOWN


def test_a_value_that_the_definition_would_refuse_counts_as_missing() -> None:
    def narrowed(one: Manifest) -> None:
        field = status_of(one)["properties"]["conditions"]["items"]["properties"]["status"]
        assert "Unknown" in field["enum"]
        field["enum"] = ["True", "False"]

    assert "it lacks status.conditions[].status=Unknown;" in str(misfit(spoilt(narrowed)))


def test_a_cluster_without_the_definition_is_told_to_get_it() -> None:
    assert misfit(None) == f"the cluster has no definition {NAME}: {REMEDY}"


class TestLook:
    def kube(self, definition: Manifest | None) -> FakeKube:
        kube = FakeKube()
        if definition is not None:
            kube.objects["CustomResourceDefinition", "", NAME] = definition
        return kube

    async def test_the_cluster_is_asked_for_the_definition_by_name(self) -> None:
        kube = self.kube(custom_resource_definition())
        assert await fault(kube) is None
        assert kube.reads == [f"CustomResourceDefinition/{NAME}"]
        assert kube.writes == []

    async def test_an_old_one_is_told(self) -> None:
        assert "status.history" in str(
            await fault(self.kube(spoilt(lambda o: status_of(o)["properties"].pop("history"))))
        )

    async def test_an_api_server_that_does_not_answer_is_waited_for(self) -> None:
        kube, slept = self.kube(None), list[float]()
        kube.fail(unavailable, "get", times=2)

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        assert "has no definition" in str(await fault(kube, sleep))
        assert slept == [AGAIN_S, AGAIN_S]

    async def test_without_the_right_to_look_the_operator_starts_all_the_same(self) -> None:
        kube = self.kube(None)
        kube.fail(lambda: Forbidden("Forbidden", "GET …: may not", 403), "get")
        assert await fault(kube) is None
