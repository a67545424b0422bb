"""Which programs a cluster is made of, how each is built, and which build of it is the right one.

Nothing here builds or starts anything (see `build`). A build is named by a hash over all that shapes the binary, so
that a changed version never runs by mistake and an unchanged one is never built twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.errors import ClusterError
from tests.testbed.places import GO_MODULES, cache_folder

CONTROL = "control"
KWOK = "kwok"
PROMETHEUS = "prometheus"
KEDA = "keda"
ENGINES = "engines"
PROMTOOL = "promtool"
HELM = "helm"

NEEDS: Mapping[str, tuple[str, ...]] = {
    CONTROL: (),
    KWOK: (CONTROL,),
    PROMETHEUS: (CONTROL,),
    KEDA: (KWOK,),  # KEDA only writes an autoscaler; the controllers that come with kwok make replicas of it.
    ENGINES: (KWOK,),  # A simulated engine listens on its pod's address, which kwok gives.
    PROMTOOL: (),  # No process: the program alone, for the tests of rules.
    HELM: (),  # No process: the program alone, for whoever installs a chart.
}
"""Every part of a cluster and the parts it cannot do without."""

FORMAT = 1  # Part of every key; raise it when the layout of a build's folder changes.


@dataclass(frozen=True, slots=True)
class Assets:
    """Files of a tool's module that a cluster loads at start, copied beside the binary when it is built."""

    module: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """One program, as its Go module builds it."""

    name: str
    part: str
    folder: str
    """The folder under ``tools/`` with its go.mod; tools of one folder share most packages."""
    package: str
    usual_s: float
    """Build time on two cores after the tools before it in `TOOLS`, from an empty Go cache, downloads not counted."""
    stamped: bool = False
    """Whether the binary must be told its Kubernetes version: unstamped, it says v0.0.0 and feature checks go wrong."""
    assets: Assets | None = None

    @property
    def go_mod(self) -> Path:
        return GO_MODULES / self.folder / "go.mod"

    @property
    def go_sum(self) -> Path:
        return GO_MODULES / self.folder / "go.sum"


_KUBERNETES = "k8s.io/kubernetes/cmd/"
_KWOK_STAGES = ("kustomize/stage/node/fast/node-*.yaml", "kustomize/stage/node/heartbeat/node-*.yaml")

TOOLS: tuple[Tool, ...] = (
    Tool("etcd", CONTROL, "etcd", "go.etcd.io/etcd/server/v3", 40),
    Tool("kube-apiserver", CONTROL, "kubernetes", _KUBERNETES + "kube-apiserver", 330, stamped=True),
    Tool("kubectl", CONTROL, "kubernetes", _KUBERNETES + "kubectl", 25, stamped=True),
    Tool("kube-controller-manager", KWOK, "kubernetes", _KUBERNETES + "kube-controller-manager", 92, stamped=True),
    Tool("kube-scheduler", KWOK, "kubernetes", _KUBERNETES + "kube-scheduler", 9, stamped=True),
    Tool(
        "kwok",
        KWOK,
        "kwok",
        "sigs.k8s.io/kwok/cmd/kwok",
        72,
        assets=Assets("sigs.k8s.io/kwok", (*_KWOK_STAGES, "kustomize/stage/pod/fast/pod-*.yaml")),
    ),
    Tool("prometheus", PROMETHEUS, "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", 280),
    Tool(
        "keda-operator",
        KEDA,
        "keda",
        "github.com/kedacore/keda/v2/cmd/operator",
        375,
        assets=Assets("github.com/kedacore/keda/v2", ("config/crd/bases/*.yaml",)),
    ),
    Tool("keda-adapter", KEDA, "keda", "github.com/kedacore/keda/v2/cmd/adapter", 68),
    Tool("promtool", PROMTOOL, "prometheus", "github.com/prometheus/prometheus/cmd/promtool", 30),
    Tool("helm", HELM, "helm", "helm.sh/helm/v4/cmd/helm", 90),
)
"""In the order of need: a cluster's first parts are built first."""

BUILD_ENVIRONMENT: Mapping[str, str] = {
    "CGO_ENABLED": "0",  # No C compiler is asked for, and the binaries do not depend on the machine's libraries.
    "GOWORK": "off",  # A workspace in a folder above would change the versions.
    "GOFLAGS": "-mod=readonly",  # Replaces the user's flags; an empty value would let those of `go env -w` through.
}
"""What a build sets, so that the caller's settings do not change its result."""

GO_SETTINGS = ("GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT")
"""What a build takes as it is on this machine: part of the key."""


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a tool, whether it exists yet or not."""

    tool: Tool
    folder: Path

    @property
    def binary(self) -> Path:
        return self.folder / self.tool.name

    @property
    def assets(self) -> Path:
        return self.folder / "assets"

    @property
    def exists(self) -> bool:
        """Whether it can be used: a folder only ever gets this name when it is complete."""
        return self.binary.exists()


@dataclass(frozen=True, slots=True)
class Toolset:
    """The builds that a cluster starts, by tool name."""

    builds: Mapping[str, Build]

    def __getitem__(self, name: str) -> Path:
        """The path of a tool's binary."""
        return self.builds[name].binary

    def assets(self, name: str) -> list[Path]:
        """The files of its module that were kept beside a tool, in a fixed order."""
        return sorted(self.builds[name].assets.glob("*.yaml"))


def close_over(parts: Iterable[str]) -> frozenset[str]:
    """The parts asked for and all that they need; the API server is always among them.

    Raises:
        ClusterError: a part that does not exist.
    """
    found: set[str] = set()
    waiting = [CONTROL, *parts]
    while waiting:
        part = waiting.pop()
        if part not in NEEDS:
            raise ClusterError(f"there is no part {part!r}", f"The parts are {', '.join(NEEDS)}.")
        if part not in found:
            found.add(part)
            waiting.extend(NEEDS[part])
    return frozenset(found)


def tools_of(parts: Iterable[str]) -> list[Tool]:
    """The tools that these parts run, in the order of need."""
    wanted = close_over(parts)
    return [tool for tool in TOOLS if tool.part in wanted]


def module_version(go_mod: str, module: str) -> str:
    """The version that a go.mod requires of a module, without the ``v``.

    Raises:
        ClusterError: the module is not required there.
    """
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError(f"go.mod does not require {module}")
    return found.group(1)


def go_line(go_mod: str) -> str:
    """The Go version that a go.mod asks for, such as ``1.26.0``."""
    found = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    return found.group(1) if found else "0"


def link_flags(tool: Tool, go_mod: str) -> str:
    """What the linker is told: no symbol tables (half the size), and the version where the tool must know it."""
    flags = "-s -w"
    if tool.stamped:
        version = module_version(go_mod, "k8s.io/kubernetes")
        major, minor, _ = version.split(".", 2)
        for name, value in (("gitVersion", f"v{version}"), ("gitMajor", major), ("gitMinor", minor)):
            flags += f" -X k8s.io/component-base/version.{name}={value}"
    return flags


def build_arguments(tool: Tool, go_mod: str) -> list[str]:
    """The arguments of ``go`` that make the binary, all but where to put it."""
    return ["build", "-trimpath", "-buildvcs=false", f"-ldflags={link_flags(tool, go_mod)}", tool.package]


def cache_key(tool: Tool, go_mod: str, go_sum: str, go_settings: Mapping[str, str]) -> str:
    """Sixteen hex digits over all that shapes a build: module versions, flags, the Go toolchain and its target."""
    assets = [tool.assets.module, *tool.assets.patterns] if tool.assets else []
    content = {
        "format": FORMAT,
        "arguments": build_arguments(tool, go_mod),
        "environment": dict(BUILD_ENVIRONMENT),
        "go": {name: go_settings.get(name, "") for name in GO_SETTINGS},
        "go.mod": go_mod,
        "go.sum": go_sum,
        "assets": assets,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def build_of(tool: Tool, go_settings: Mapping[str, str]) -> Build:
    """The build of a tool that the files on disk and this Go call for."""
    key = cache_key(tool, tool.go_mod.read_text(), tool.go_sum.read_text(), go_settings)
    return Build(tool, cache_folder() / "tools" / tool.name / key)
