"""What is shown while tools build for the first time: the build's progress, and the control law on the simulator.

The simulation runs in virtual time and is slowed so that one can follow it. It ends with the build, wherever it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from demo import arms, scenario, stage
from demo.facts import Decision
from demo.live import REFRESH_PER_SECOND, LineScreen, Picture, Row, render
from demo.scenario import Scenario
from outrider.core.observation import Observation, observe
from outrider.core.series import Series
from outrider.replay.virtual import Rendered, VirtualOperator, read_manifest
from outrider.replay.virtual import render as render_manifest
from outrider.simulator.fleet import Commands
from tests.testbed.build import BuildEvent, ensure_tools
from tests.testbed.progress import build_line

TITLE = "SIMULATION IN VIRTUAL TIME, while the cluster's tools are built"
SPEED = 5.0
"""Virtual seconds a second: the whole story in about a minute."""
LINE_EVERY_S = 40.0
"""Virtual seconds between two lines, where there is no terminal: a log of a build should not drown in them."""
FIRST_BUILD = (
    "The cluster's tools are built from source the first time: about 22 minutes on two cores, less on more. Meanwhile"
    " the same control law runs on the simulator."
)


class BuildOver(Exception):
    """The build has ended, and the simulation with it."""


@dataclass(slots=True)
class Waiting:
    """Takes the build's events, and shows them beside a simulation as soon as there is something to build."""

    console: Console
    story: Scenario
    lines: dict[str, str] = field(default_factory=dict)
    """The last line of each tool's progress."""
    _thread: threading.Thread | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _screen: _Screen | None = None

    def report(self, event: BuildEvent) -> None:
        """A build event, from the thread that builds."""
        text = build_line(event)
        if text is None:
            return
        self.lines[event.tool.name] = text
        if self._thread is None:
            self.console.print(FIRST_BUILD)
            self._screen = _Screen(self)
            self._thread = threading.Thread(target=self._simulate, name="simulation", daemon=True)
            self._thread.start()
        if not self.console.is_terminal:
            self.console.print(text, highlight=False)

    def close(self) -> None:
        """The build is over."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _simulate(self) -> None:
        """Play the story again and again until the build is over."""
        screen = self._screen
        assert screen is not None
        rendered = render_manifest(read_manifest(stage.EXAMPLE), scenario.CONTROL_PERIOD_S)
        try:
            while True:
                controller = _Watched(rendered, self.story, screen, self._over)
                arms.replay(rendered, self.story, rendered.settings, controller.state.target, controller)
        except BuildOver:
            screen.close()


class _Screen:
    """Build lines and the simulation on one screen."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._lines = LineScreen("simulation-in-virtual-time", LINE_EVERY_S)
        self._live: Live | None = None
        if waiting.console.is_terminal:
            self._live = Live(console=waiting.console, refresh_per_second=REFRESH_PER_SECOND, transient=True)
            self._live.start()

    def show(self, picture: Picture) -> None:
        if self._live is None:
            self._lines.show(picture)
            return
        building = [Text(line, style="dim") for line in list(self._waiting.lines.values())[-4:]]
        self._live.update(Group(*building, Text(""), render(picture)))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


class _Watched(VirtualOperator):
    """The control law, with somebody watching: each pass is shown, and takes as long as a person needs to read it."""

    def __init__(self, rendered: Rendered, story: Scenario, screen: _Screen, over: threading.Event) -> None:
        super().__init__(rendered.config, arms.window_s(rendered))
        self._story, self._screen, self._over = story, screen, over

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        commands = super().control(now_s, series, replicas)
        window = observe(series, now_s - self.window_s, now_s)
        self._screen.show(self._picture(now_s, replicas, window if isinstance(window, Observation) else None))
        if self._over.wait(scenario.CONTROL_PERIOD_S / SPEED):
            raise BuildOver
        return commands

    def _picture(self, now_s: float, replicas: int, window: Observation | None) -> Picture:
        decisions = [
            Decision(one.at_s, scenario.SERVICE, one.kind, one.before, one.after, one.reason) for one in self.changes
        ]
        row = Row(
            service=scenario.SERVICE,
            ready=replicas,
            replicas=replicas,
            in_flight=None if window is None else window.in_flight,
            target=self.state.target,
            batch=None if window is None else window.batch,
            speculative_tokens=None if window is None else self.state.schedule.at(window.batch),
            schedule=str(self.state.schedule),
            acknowledged=f"{replicas}/{replicas}",
            acceptance_length=None if window is None else _acceptance_length(window),
            tpot_p95_s=None if window is None else window.tpot.quantile(0.95),
            objective_s=self.config.tpot_objective_s,
            tokens_per_second=None if window is None else window.generation_tokens / window.seconds,
        )
        phase = self._story.phase(now_s)
        return Picture(TITLE, min(now_s, self._story.seconds), self._story.seconds, phase, [row], decisions)


def build(console: Console, story: Scenario) -> float:
    """Build whatever is missing, and show what happens meanwhile; returns the seconds it took."""
    began_s = time.monotonic()
    waiting = Waiting(console, story)
    try:
        ensure_tools(stage.PARTS, waiting.report)
    finally:
        waiting.close()
    return time.monotonic() - began_s


def _acceptance_length(window: Observation) -> float | None:
    return None if window.num_drafts <= 0 else 1.0 + sum(window.accepted_per_pos) / window.num_drafts
