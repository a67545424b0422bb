"""The operator's control law on the simulator's fleet, in virtual time.

It is put together from the same parts as the operator's passes: the resource is parsed, resolved and rendered, the
engine is started from the rendered command line, and `outrider.core` observes and decides. Nothing else of the operator
takes part: no API server, no KEDA, no delivery that can fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from outrider.api.defaults import SCALE_DOWN_STABILIZATION_S, Resolved, resolve
from outrider.api.resource import SpeculativeInferenceService, parse
from outrider.core.controller import Outcome, control
from outrider.core.decision import Change
from outrider.core.observation import Observation, observe_since
from outrider.core.schedule import constant
from outrider.core.series import Missing, Series
from outrider.core.state import ControllerConfig, ControllerState, initial_state
from outrider.core.target import least_requests
from outrider.engine.admission import admit
from outrider.manifests import engine_container, engine_settings
from outrider.reconcile.configuration import controller_config, look_back_s
from outrider.simulator import command_line
from outrider.simulator.fleet import Commands
from outrider.simulator.settings import EngineSettings

SAMPLE = Path(str(files(__package__) / "data" / "service.yaml"))
"""The resource of a replay that names none."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A resource as the operator understands it."""

    resource: SpeculativeInferenceService
    resolved: Resolved
    config: ControllerConfig
    settings: EngineSettings
    """What the rendered command line and environment make of an engine."""
    look_back_s: int
    """For how long load must stay low before the HPA gives a replica up, seconds."""

    def with_constant(self, num_speculative_tokens: int) -> EngineSettings:
        """The same engine, which keeps to one K."""
        assert self.settings.plugin is not None
        flat = constant(num_speculative_tokens, self.settings.max_num_seqs)
        return replace(self.settings, plugin=replace(self.settings.plugin, initial_schedule=flat))


def render(
    manifest: Mapping[str, Any],
    period_s: float,
    cold_start_s: float | None = None,
    usual_look_back_s: int = SCALE_DOWN_STABILIZATION_S,
) -> Rendered:
    """Parse, admit and render a resource; raises `outrider.errors.InvalidSpec` as the operator's status would say.

    ``cold_start_s`` is what the operator is to know of starts, ``usual_look_back_s`` its setting for resources that
    name none.
    """
    # The API server adds these two; nothing of the engine depends on them.
    metadata = {"uid": "virtual", "generation": 1, **manifest["metadata"]}
    resource = parse({**manifest, "metadata": metadata})
    resolved = resolve(resource.spec, usual_look_back_s)
    engine = engine_settings.engine_config(resource, resolved)
    admit(engine)
    container = engine_container.build(resource, resolved, engine)
    environment = {one["name"]: one["value"] for one in container.env if "value" in one}
    config = controller_config(resolved, container, period_s=period_s, cold_start_s=cold_start_s)
    return Rendered(
        resource,
        resolved,
        config,
        command_line.parse(container.args, environment),
        look_back_s(resource.spec, resolved, cold_start_s),
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """The one resource of a file."""
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    return manifest


class VirtualOperator:
    """Steers a replayed fleet as the operator steers a real one."""

    def __init__(self, config: ControllerConfig, window_s: float) -> None:
        """``window_s`` is the length of the window that decisions look at."""
        self.config, self.window_s = config, window_s
        self.state: ControllerState = initial_state(config)
        self.outcome: Outcome | None = None
        self.changes: list[Change] = []
        self.window: Observation | Missing = Missing("NotStarted", "no pass was made yet")

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        """One pass."""
        since_s = now_s - self.window_s
        learned_s = self.state.learned_until_s
        moments_s = (since_s, since_s if learned_s is None else max(learned_s, since_s))
        self.window, increment = observe_since(series, moments_s, now_s)
        self.outcome = control(self.config, self.state, self.window, increment, now_s)
        self.state = self.outcome.state
        self.changes += self.outcome.changes
        held = least_requests(self.state.target, present=replicas, least=self.outcome.least_replicas)
        return Commands(self.state.schedule, self.state.target, held)
