"""What decides which build of a tool is the right one."""

from __future__ import annotations

import re

import pytest

from tests.testbed.errors import ClusterError
from tests.testbed.tools import GO_SETTINGS, TOOLS, Tool, build_arguments, cache_key, close_over, link_flags, tools_of

GO = {"GOVERSION": "go1.26.8", "GOOS": "linux", "GOARCH": "amd64"}
MOD = "module x\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n"
APISERVER = Tool("kube-apiserver", "control", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 1, stamped=True)


def test_the_same_inputs_give_the_same_key() -> None:
    key = cache_key(APISERVER, MOD, "sums", GO)
    assert key == cache_key(APISERVER, MOD, "sums", {**GO, "GOPROXY": "elsewhere"})
    assert re.fullmatch("[0-9a-f]{16}", key)


@pytest.mark.parametrize(
    ("go_mod", "go_sum", "go"),
    [
        pytest.param(MOD.replace("1.37.2", "1.37.3"), "sums", GO, id="another module version"),
        pytest.param(MOD, "other sums", GO, id="another checksum"),
        pytest.param(MOD, "sums", {**GO, "GOVERSION": "go1.27.0"}, id="another toolchain"),
        pytest.param(MOD, "sums", {**GO, "GOARCH": "arm64"}, id="another processor"),
        pytest.param(MOD, "sums", {**GO, "GOEXPERIMENT": "greenteagc"}, id="an experiment of the compiler"),
    ],
)
def test_whatever_shapes_the_binary_changes_the_key(go_mod: str, go_sum: str, go: dict[str, str]) -> None:
    assert cache_key(APISERVER, go_mod, go_sum, go) != cache_key(APISERVER, MOD, "sums", GO)


def test_every_setting_of_the_key_is_one_that_go_reports() -> None:
    assert set(GO) < set(GO_SETTINGS)


def test_kubernetes_is_told_its_version_and_others_are_not() -> None:
    stamp = "-X k8s.io/component-base/version."
    assert link_flags(APISERVER, MOD) == f"-s -w {stamp}gitVersion=v1.37.2 {stamp}gitMajor=1 {stamp}gitMinor=37"
    assert link_flags(Tool("kwok", "kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", 1), "") == "-s -w"


def test_each_tool_is_a_tool_of_its_module() -> None:
    for tool in TOOLS:
        go_mod = tool.go_mod.read_text()
        assert re.search(rf"^(tool |\t){re.escape(tool.package)}$", go_mod, re.MULTILINE), tool.name
        assert tool.go_sum.exists()
        assert build_arguments(tool, go_mod)[-1] == tool.package


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param([], {"control"}, id="nothing is an API server"),
        pytest.param(["prometheus"], {"control", "prometheus"}, id="Prometheus needs no nodes"),
        pytest.param(["keda"], {"control", "kwok", "keda"}, id="KEDA needs the controllers"),
        pytest.param(["engines"], {"control", "kwok", "engines"}, id="engines need pod addresses"),
    ],
)
def test_a_part_brings_what_it_needs(asked: list[str], expected: set[str]) -> None:
    assert close_over(asked) == expected


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match=r"no part 'kedda'.*\n.*keda"):
        close_over(["kedda"])


def test_tools_come_in_the_order_of_need() -> None:
    assert [tool.name for tool in tools_of([])] == ["etcd", "kube-apiserver", "kubectl"]
    names = [tool.name for tool in tools_of(["helm", "keda", "prometheus", "promtool"])]
    assert names == [tool.name for tool in TOOLS]
