"""The page of licences: what the operator's dependencies say of themselves, read from their installed metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from importlib import metadata
from pathlib import Path

from outrider.reference.markdown import table

LOCK = Path("requirements/operator.txt")
"""What the operator's image installs."""
ELSEWHERE = "sys_platform == 'win32'"
"""The marker of dependencies that no image has."""

PERMISSIVE = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "PSF-2.0", "Zlib",
})  # fmt: skip
"""By SPDX: to be used in and with anything, with a notice at most."""
ACCEPTED: Mapping[str, str] = {
    "certifi": "MPL-2.0 asks for the source of changed files; it is a list of certificates, and used unchanged",
}
"""Dependencies of other licences, and why they are taken all the same."""
SPDX: Mapping[str, str] = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
"""What metadata of the older form say, and what it is called today."""

TOOLS: Mapping[str, str] = {
    "etcd": "go.etcd.io/etcd",
    "helm": "helm.sh/helm",
    "keda": "github.com/kedacore/keda",
    "kubernetes": "k8s.io/kubernetes",
    "kwok": "sigs.k8s.io/kwok",
    "prometheus": "github.com/prometheus/prometheus",
}
"""Modules that the local cluster is built of, by their folder below ``tests/testbed/tools``; all Apache-2.0."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One of the lock file."""

    name: str
    versions: tuple[str, ...]
    """More than one where they differ by Python version."""
    licence: str
    """An SPDX expression, or what the metadata say where they are of the older form; empty if they say nothing."""

    @property
    def permissive(self) -> bool:
        """Whether every licence that it names is known and permissive."""
        names = re.split(r" AND ", self.licence)
        return all(one in PERMISSIVE for one in names)


def dependencies(lock: Path = LOCK) -> list[Dependency]:
    """All that the operator's image installs beside Python, in order of name.

    Raises:
        ValueError: one is not installed here; the text says how to install it.
    """
    versions: dict[str, list[str]] = {}
    for name, version in _locked(lock.read_text(encoding="utf-8")):
        versions.setdefault(name, []).append(version)
    return [Dependency(name, tuple(found), licence_of(_metadata(name))) for name, found in versions.items()]


def licence_of(found: Message) -> str:
    """What a distribution's metadata say: the expression, the short text of the older field, or the classifier."""
    expression = found.get("License-Expression") or found.get("License") or ""
    if not expression or "\n" in expression:  # some put the whole text there
        classifiers = [
            one.split(" :: ")[-1] for one in found.get_all("Classifier") or [] if one.startswith("License ::")
        ]
        expression = " AND ".join(classifiers)
    return SPDX.get(expression, expression)


def page() -> str:
    """The whole page."""
    rows = [(one.name, ", ".join(one.versions), one.licence + _why(one.name)) for one in dependencies()]
    return "\n".join([
        "# Licences",
        "",
        "Outrider is under Apache-2.0 ([LICENSE](../../LICENSE)). What it installs and runs is under the licences",
        "below, by SPDX and as the packages themselves say.",
        "",
        "## The operator's image and the command line",
        "",
        "Beside Python (PSF-2.0), from `requirements/operator.txt`:",
        "",
        table(("package", "version", "licence"), rows),
        "",
        "## The engine's image",
        "",
        "`vllm/vllm-openai` (vLLM: Apache-2.0) with one wheel more, Outrider's own, which needs nothing else. The base",
        "image holds CUDA libraries under NVIDIA's own terms, and the models that you serve have theirs.",
        "",
        "## The local cluster",
        "",
        "Built from source for tests and `make demo`, and shipped with nothing. All are under Apache-2.0:",
        "",
        *(f"- `{module}`" for module in TOOLS.values()),
        "",
    ])  # fmt: skip


def _why(name: str) -> str:
    return f": {ACCEPTED[name].partition(' ')[2]}" if name in ACCEPTED else ""


def _locked(text: str) -> Iterator[tuple[str, str]]:
    """Names and versions of a lock file, without what is for another system."""
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9_.-]+)==([^ ;\\]+)(?: ; ([^\\]+))?", line)
        if match is not None and (match[3] or "").strip() != ELSEWHERE:
            yield match[1], match[2]


def _metadata(name: str) -> Message:
    try:
        return metadata.metadata(name)  # type: ignore[return-value]
    except metadata.PackageNotFoundError as error:
        raise ValueError(f"{name} of {LOCK} is not installed; run make setup") from error
