"""What the operator was allowed to do, beside what it did: ``python -m tests.testbed.rights FOLDER``.

The API server's audit log has every call of a service account. The tests leave an extract of it in a folder, one file a
cluster (``pytest --record-rights FOLDER``); together they must have used every right, and been denied nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.places import REPOSITORY

SOURCE = "charts/outrider/files/rules.yaml"
RULES = REPOSITORY / SOURCE
OPERATOR = "system:serviceaccount:outrider-system:outrider"
ASKED_WITHIN_A_CALL = {
    "update serving.outrider.dev/speculativeinferenceservices/finalizers": (
        "the API server asks for it itself when it admits an owner reference that blocks deletion"
    ),
}
"""Rights that no call of their own uses, each with who does; a test takes them away to see that they are needed."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one kind of object."""

    verb: str
    group: str
    resource: str
    """With the subresource, if any."""
    name: str = ""
    """Of the only object that it is about; empty for any."""

    def __str__(self) -> str:
        where = f"{self.group}/{self.resource}" if self.group else self.resource
        return f"{self.verb} {where}" + (f" {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that somebody made."""

    right: Right
    """What it took; always with the name, if the call had one."""
    denied: bool
    uri: str


def events(path: Path) -> Iterator[dict[str, Any]]:
    """What an audit log holds so far; a line that is still being written is not among it."""
    whole, _, _ = path.read_text().rpartition("\n")
    yield from map(json.loads, whole.splitlines())


def calls(log: Path, account: str = OPERATOR) -> Iterator[Call]:
    """Calls of an account in an audit log and in the file kept beside it, those about objects alone."""
    for path in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        for event in events(path):
            if event["user"]["username"] == account and "objectRef" in event:
                yield from _calls(event)


def _calls(event: Mapping[str, Any]) -> Iterator[Call]:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    denied = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    verbs = [event["verb"]]
    if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
        verbs.append("create")  # server-side apply of something new needs both
    for verb in verbs:
        right = Right(verb, reference.get("apiGroup", ""), resource, reference.get("name", ""))
        yield Call(right, denied, event["requestURI"])


def rights(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """The rules of a role, one right at a time."""
    return {
        Right(verb, group, resource, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def granted(path: Path = RULES) -> set[Right]:
    """All that the chart may give the operator, whatever its values."""
    document = yaml.safe_load(path.read_text())
    return rights([rule for part in ("namespaced", "own", "cluster", "named") for rule in document[part]])


def unused(given: Iterable[Right], made: Iterable[Call]) -> list[Right]:
    """Rights that no call has used."""
    took = {call.right for call in made}
    took |= {Right(one.verb, one.group, one.resource) for one in took}
    return sorted(right for right in given if right not in took and str(right) not in ASKED_WITHIN_A_CALL)


def record(logs: Path, folder: Path) -> None:
    """Leave an extract of a cluster's log in the folder: each different call of the operator once."""
    found = {(call.right, call.denied): call for call in calls(logs / "audit.log")}
    if found:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{logs.parent.name}.json"
        target.write_text(json.dumps([asdict(call) for call in found.values()], indent=1))


def recorded(folder: Path) -> list[Call]:
    """What the clusters of a run have left."""
    return [
        Call(Right(**one["right"]), one["denied"], one["uri"])
        for path in sorted(folder.glob("*.json"))
        for one in json.loads(path.read_text())
    ]


def main(arguments: list[str]) -> int:
    """Compare the extracts in a folder with the chart's rules; 1 when they differ."""
    made = recorded(Path(arguments[0]))
    denied, idle = sorted({f"{call.right} ({call.uri})" for call in made if call.denied}), unused(granted(), made)
    lines = [f"denied: {one}; give it in {SOURCE}, or do not ask" for one in denied]
    lines += [f"never used: {right}; take it out of {SOURCE}, or test what needs it" for right in idle]
    for line in lines or [f"{len(granted())} given, all used, and no call denied"]:
        sys.stdout.write(f"rights: {line}\n")
    return 1 if denied or idle else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
