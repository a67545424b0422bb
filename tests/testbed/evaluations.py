"""The kubelet's part for Jobs that evaluate a candidate: their container runs, for real, as a process of this machine.

Its image is not pulled: what it calls ``python`` is ours. It gets the variables and the ConfigMaps of its pod, in a
folder in the place of its mounts, and what it leaves as its result becomes the termination message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.testbed.api import ApiError
from tests.testbed.cluster import Cluster
from tests.testbed.kwok import ENGINE_LABEL, EVALUATION

PERIOD_S = 0.5
LONGEST_S = 300.0  # Guards against hanging: it takes seconds.
LAST_WORDS = 2048  # bytes of a log that serve as message
RESULT = "OUTRIDER_RESULT"


@contextmanager
def running(cluster: Cluster) -> Iterator[None]:
    """Run what evaluates, as long as this lasts."""
    end = threading.Event()
    thread = threading.Thread(target=_watch, args=(cluster, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _watch(cluster: Cluster, end: threading.Event) -> None:
    done = set[str]()
    while not end.wait(PERIOD_S):
        # A call that fails is made again in the next round, as a kubelet does.
        with suppress(ApiError):
            for pod in cluster.api.get(f"/api/v1/pods?labelSelector={ENGINE_LABEL}={EVALUATION}")["items"]:
                meta, runs = pod["metadata"], pod["status"].get("phase") == "Running"
                waits = runs and meta["uid"] not in done and "deletionTimestamp" not in meta
                if waits and _end(cluster, pod, *_run(cluster, pod)):
                    done.add(meta["uid"])


def _run(cluster: Cluster, pod: Mapping[str, Any]) -> tuple[int, str]:
    """Exit status and termination message of a pod's one container."""
    (container,) = pod["spec"]["containers"]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "termination-log")
        places = dict(_mounted(cluster, pod, container, Path(folder)))
        command = [_placed(word, places) for word in (*container.get("command", ()), *container.get("args", ()))]
        command[0] = sys.executable if command[0] == "python" else command[0]
        variables = {one["name"]: one.get("value", "") for one in container.get("env", ())}
        ended = subprocess.run(
            command,
            env={"PATH": os.environ["PATH"], **variables, RESULT: str(result)},
            capture_output=True,
            check=False,
            timeout=LONGEST_S,
        )
        said = result.read_text() if result.exists() else ""
    return ended.returncode, said or ("" if ended.returncode == 0 else ended.stderr[-LAST_WORDS:].decode())


def _mounted(
    cluster: Cluster, pod: Mapping[str, Any], container: Mapping[str, Any], folder: Path
) -> Iterator[tuple[str, str]]:
    """Where each ConfigMap is to be, and where it is."""
    volumes = {one["name"]: one for one in pod["spec"].get("volumes", ())}
    for number, mount in enumerate(container.get("volumeMounts", ())):
        source = volumes[mount["name"]].get("configMap")
        if source is None:
            continue
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{source['name']}"
        place = folder / str(number)
        place.mkdir()
        for name, text in cluster.api.get(path)["data"].items():
            (place / name).write_text(text)
        yield mount["mountPath"], str(place)


def _placed(word: str, places: Mapping[str, str]) -> str:
    for wanted, place in places.items():
        if word.startswith(f"{wanted}/"):
            return place + word.removeprefix(wanted)
    return word


def _end(cluster: Cluster, pod: Mapping[str, Any], status: int, message: str) -> bool:
    """Write what a kubelet writes; whether that was done. A pod that is gone meanwhile needs nothing."""
    (container,), meta, now = pod["spec"]["containers"], pod["metadata"], datetime.now(UTC).strftime("%FT%TZ")
    reason = "Completed" if status == 0 else "Error"
    ended = {"exitCode": status, "reason": reason, "message": message, "startedAt": now, "finishedAt": now}
    shown = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    patch = {
        "metadata": {"uid": meta["uid"]},
        "status": {
            "phase": "Succeeded" if status == 0 else "Failed",
            "containerStatuses": [{**shown, "state": {"terminated": ended}}],
        },
    }
    done = cluster.kubectl(
        *("patch", "pod", meta["name"], "-n", meta["namespace"], "--subresource=status", "--type=merge"),
        *("-p", json.dumps(patch)),
        check=False,
    )
    return done.returncode == 0
