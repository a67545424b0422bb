"""A pod as a kubelet reads it: its place, its engine's container, probes, and what tests ask for by annotation."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.simulator.exits import refuse

Manifest = Mapping[str, Any]

ANNOTATION = "simulator.outrider.dev/"
VARIABLE = "SIMULATOR_"
LOAD_S = 2.0  # a start that tests can wait for; a real one takes a minute or more
_EXIT = re.compile(r"exit (\d{1,3})(?:: *(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP GET of the kubelet; ``port`` is resolved."""

    path: str
    port: int
    period_s: float = 10.0
    initial_delay_s: float = 0.0
    failure_threshold: int = 3
    success_threshold: int = 1
    timeout_s: float = 1.0

    @property
    def budget_s(self) -> float:
        """How long a start-up probe may fail before the container is killed."""
        return self.initial_delay_s + self.period_s * self.failure_threshold


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a test asks of the simulator by annotation; or by a variable of the engine's environment, for pods whose
    annotations it cannot choose: ``SIMULATOR_LOAD_SECONDS`` stands for ``simulator.outrider.dev/load-seconds``."""

    load_s: float = LOAD_S
    crash: tuple[int, str] | None = None
    """Exit status and message, at the start."""
    crash_after_s: float | None = None
    """From the moment that the engine serves."""
    hang_after_s: float | None = None
    plugin: bool = True
    """``simulator.outrider.dev/plugin: "absent"`` makes a plain engine image of it."""
    behaviour: str = ""
    """Words of `outrider.simulator.behaviour`, beside those in the names of draft and image."""
    speed: float = 1.0
    """How many times as fast as told the engine loads and its start-up probe's budget passes. What is written of an
    ended container's life is as long as it would have been."""


@dataclass(frozen=True, slots=True)
class EnginePod:
    """The parts of a pod that matter here."""

    manifest: Manifest

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Its UID: a pod of the same name with another one is another pod."""
        return str(self.manifest["metadata"]["uid"])

    @property
    def address(self) -> str | None:
        """Its IP, once it has one."""
        return self.manifest.get("status", {}).get("podIP") or None

    @property
    def scheduled(self) -> bool:
        """Whether it has a node."""
        return bool(self.manifest["spec"].get("nodeName"))

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.manifest.get("status", {}).get("phase") in ("Succeeded", "Failed")

    @property
    def deletion_grace_s(self) -> float | None:
        """Seconds that its end may take; None while nobody deleted it."""
        meta = self.manifest["metadata"]
        return float(meta.get("deletionGracePeriodSeconds", 30)) if meta.get("deletionTimestamp") else None

    @property
    def engine(self) -> Manifest:
        """The engine's container: the one called so, or the first."""
        containers: Sequence[Manifest] = self.manifest["spec"]["containers"]
        return next((one for one in containers if one["name"] == "engine"), containers[0])

    @property
    def unreachable_image(self) -> str:
        """The engine's image, if its registry is under ``.invalid``, where no host can be; else empty."""
        image = self.image
        return image if image.partition("/")[0].endswith(".invalid") else ""

    @property
    def image(self) -> str:
        """The engine's image."""
        return str(self.engine.get("image", ""))

    @property
    def container_names(self) -> list[str]:
        """All containers, in order."""
        return [str(one["name"]) for one in self.manifest["spec"]["containers"]]

    @property
    def service_links(self) -> bool:
        """Whether Kubernetes puts the namespace's Services into the environment."""
        return bool(self.manifest["spec"].get("enableServiceLinks", True))

    @property
    def pre_stop_s(self) -> float:
        """Length of the preStop sleep, given as a sleep or as a command."""
        hook = self.engine.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            return float(hook["sleep"]["seconds"])
        command = hook.get("exec", {}).get("command", [])
        match = re.search(r"\bsleep\s+(\d+(?:\.\d+)?)", " ".join(command))
        return float(match[1]) if match else 0.0

    def probe(self, kind: str) -> Probe | None:
        """``startup``, ``readiness`` or ``liveness``; None if the pod has none that is an HTTP GET.

        Raises:
            EngineExit: its port is a name that no port has; a kubelet would wait for ever.
        """
        given = self.engine.get(f"{kind}Probe", {})
        action = given.get("httpGet")
        if action is None:
            return None
        return Probe(
            path=action.get("path", "/"),
            port=self._port(action["port"]),
            period_s=float(given.get("periodSeconds", 10)),
            initial_delay_s=float(given.get("initialDelaySeconds", 0)),
            failure_threshold=int(given.get("failureThreshold", 3)),
            success_threshold=int(given.get("successThreshold", 1)),
            timeout_s=float(given.get("timeoutSeconds", 1)),
        )

    @property
    def wishes(self) -> Wishes:
        """The annotations and variables of a test.

        Raises:
            EngineExit: one of them cannot be read; the container tells it, since nobody else would.
        """
        crash, plugin = self._annotation("crash"), self._annotation("plugin")
        match = None if crash is None else _EXIT.fullmatch(crash)
        if crash is not None and match is None:
            raise refuse(
                f'annotation {ANNOTATION}crash is {crash!r}; it must be "exit STATUS" or "exit STATUS: MESSAGE"'
            )
        if plugin not in (None, "absent"):
            raise refuse(f'annotation {ANNOTATION}plugin is {plugin!r}; it can only be "absent"')
        load_s, speed = self._seconds("load-seconds"), self._seconds("speed")
        if speed == 0:
            raise refuse(f"annotation {ANNOTATION}speed is 0; it must be above")
        return Wishes(
            load_s=LOAD_S if load_s is None else load_s,
            speed=1.0 if speed is None else speed,
            crash=(int(match[1]), match[2] or "") if match else None,
            crash_after_s=self._seconds("crash-after-seconds"),
            hang_after_s=self._seconds("hang-after-seconds"),
            plugin=plugin is None,
            behaviour=self._annotation("behaviour") or "",
        )

    def _annotation(self, name: str) -> str | None:
        variable = VARIABLE + name.upper().replace("-", "_")
        given = [one.get("value") for one in self.engine.get("env", []) if one["name"] == variable]
        text: str | None = (self.manifest["metadata"].get("annotations") or {}).get(ANNOTATION + name)
        return given[-1] if given and text is None else text

    def _seconds(self, name: str) -> float | None:
        text = self._annotation(name)
        if text is None:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise refuse(f"annotation {ANNOTATION}{name} is {text!r}; it must be a number of seconds, 0 or more")
        return seconds

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        named = {one.get("name"): int(one["containerPort"]) for one in self.engine.get("ports", [])}
        if port not in named:
            raise refuse(f"a probe asks for port {port!r}, which the container does not have")
        return named[port]
