"""What ``outrider support-bundle`` puts into its archive: files by name, each masked before it is kept.

What is masked: values of environment variables and of Secrets' data, which are never read anyway, values of arguments
and annotations that look like secrets, and everything else that `outrider.reconcile.redaction` knows by its looks.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from outrider.reconcile.redaction import MASK, masked

KEPT_ENVIRONMENT = ("OUTRIDER_", "VLLM_PLUGINS")
"""Variables whose values are settings that a reader needs; those of them that look like secrets are masked too."""
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the whole object: it says nothing more, and would have to be masked as a whole."""
Manifest = Mapping[str, Any]


@dataclass(slots=True)
class Bundle:
    """Files that are gathered, and what could not be."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Sentences: what is not in it, and why."""

    def add_text(self, name: str, text: str) -> None:
        """Keep a text, masked."""
        self.files[name] = masked(text)

    def add_objects(self, name: str, objects: Sequence[Manifest]) -> None:
        """Keep objects as YAML, masked; nothing where there are none."""
        if objects:
            documents = [redacted(one) for one in objects]
            self.files[name] = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120)

    def add_document(self, name: str, document: Any) -> None:
        """Keep a document as JSON, masked."""
        self.files[name] = json.dumps(_masked(document), indent=1, ensure_ascii=False) + "\n"

    def contents(self, head: str) -> str:
        """The list of what is in it."""
        lines = [head, "", "In it:", *(f"  {name} ({len(text.encode())} bytes)" for name, text in self.files.items())]
        if self.missing:
            lines += ["", "Not in it:", *(f"  {masked(one)}" for one in self.missing)]
        return "\n".join(lines) + "\n"

    def packed(self, folder: str, head: str, now_s: float) -> bytes:
        """The archive, with the list of its contents first."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in {"CONTENTS.txt": self.contents(head), **self.files}.items():
                data = text.encode()
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(now_s), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return packed.getvalue()


def redacted(manifest: Manifest) -> dict[str, Any]:
    """An object without values of variables, without data of Secrets, and with everything else masked by its looks."""
    found = {key: _redacted(value, (key,)) for key, value in manifest.items()}
    metadata = found.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        if isinstance(metadata.get("annotations"), dict):
            metadata["annotations"].pop(APPLIED, None)
    if manifest.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if part in found:
                found[part] = dict.fromkeys(found[part], MASK)
    return found


def _redacted(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(one, (*path, key)) for key, one in value.items()}
    if not isinstance(value, list):
        return masked(value) if isinstance(value, str) else value
    if path[-1] == "env":
        return [_variable(one) for one in value]
    if path[-1] in ("args", "command", "extraArgs"):
        return _arguments(value)
    return [_redacted(one, path) for one in value]


def _variable(one: Any) -> Any:
    """A variable with its name, and where it comes from; a literal value may be a secret whatever it is called."""
    if not isinstance(one, Mapping) or "value" not in one:
        return _redacted(one, ("variable",))
    name = str(one.get("name", ""))
    kept = masked(f"{name}={one['value']}").removeprefix(f"{name}=") if name.startswith(KEPT_ENVIRONMENT) else MASK
    return {**one, "value": kept}


def _arguments(words: Sequence[Any]) -> list[Any]:
    """A command line word by word; a flag and the value that follows it are looked at together."""
    lines = masked("\n".join(str(word).replace("\n", "\\n") for word in words)).split("\n")
    return lines if len(lines) == len(words) else [MASK for _ in words]


def _masked(document: Any) -> Any:
    if isinstance(document, Mapping):
        return {key: _masked(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_masked(value) for value in document]
    return masked(document) if isinstance(document, str) else document
