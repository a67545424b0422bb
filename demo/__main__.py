"""``python -m demo``: Outrider's main job on the local cluster, live, in about six minutes.

Sets up a cluster, installs the operator under its own service account, applies two services, replays a recorded load
with a drop in acceptance, and shows it live. Then the same replay in virtual time under fixed K, a summary, a plot and
a page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo import page, scenario, stage, waiting
from demo.arms import Arms, run_arms
from demo.live import open_screen
from demo.neighbours import NoAnswer, ServiceGone
from demo.play import Played, play
from demo.report import arms_table, meaning, stays, way_in, where
from demo.scenario import DEFAULT_S, SHORTEST_S, Scenario
from demo.summary import Live, summarize
from outrider.replay.virtual import read_manifest
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when everything promised was seen, 1 when not or on a fault, 130 on Ctrl-C."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a plain kill cleans up, too
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    cluster = stage.new_cluster()
    demo = Demo(options, console, cluster)
    try:
        return demo.run()
    except KeyboardInterrupt:
        stays(console, demo.results, cluster)
        return INTERRUPTED
    except (ClusterError, NoAnswer, ServiceGone) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        console.print(f"logs: {cluster.logs}")
        return 1


class Demo:
    """One run, from nothing to the summary."""

    def __init__(self, options: argparse.Namespace, console: Console, cluster: Cluster) -> None:
        self._options, self._console, self._cluster = options, console, cluster
        self._story = Scenario(seconds=options.seconds, seed=options.seed)
        self._began_s = time.monotonic()
        self._times: dict[str, float] = {}
        self.results: Path | None = None
        """The folder of summary, plot and page, once they are written."""

    def run(self) -> int:
        """The whole demo; the cluster has ended when this returns or raises."""
        self._times["build"] = waiting.build(self._console, self._story)
        self._say("starting the cluster: API server, controllers, scheduler, KEDA, Prometheus, simulated GPU nodes")
        with self._cluster:
            try:
                passed = self._show()
                if not self._options.once:
                    _wait_for_interrupt()
                    self._ending()
            except KeyboardInterrupt:
                self._ending()
                raise
        if not self._options.once:
            stays(self._console, self.results, self._cluster)
        return 0 if passed else 1

    def _show(self) -> bool:
        """All that is shown, up to the results; tells whether everything promised was seen."""
        stage.set_up(self._cluster, self._say)
        self._say("both services are ready")
        way_in(self._console, self._cluster, "To look around meanwhile, in another terminal:")
        document = self._write(self._play(), self._replay())
        arms_table(self._console, document)
        meaning(self._console, document)
        where(self._console, document, self._options.output, self._cluster)
        if not self._options.once:
            way_in(self._console, self._cluster, "The cluster stays up until Ctrl-C. Look around:")
        return bool(document["passed"])

    def _ending(self) -> None:
        self._console.print("\nending the cluster, a few seconds ...")

    def _play(self) -> Played:
        minutes = self._story.seconds / 60
        self._say(f"{minutes:.1f} minutes of load begin")
        self._times["first_live_line"] = self._elapsed_s()
        screen = open_screen(self._console)
        try:
            return asyncio.run(play(self._cluster, self._story, screen))
        finally:
            screen.close()

    def _replay(self) -> Arms:
        began_s = time.monotonic()
        self._say("replaying the same requests in virtual time, with the control law and with every fixed K")
        arms = run_arms(read_manifest(stage.EXAMPLE), self._story, self._say)
        self._times["arms"] = time.monotonic() - began_s
        return arms

    def _write(self, played: Played, arms: Arms) -> dict[str, Any]:
        """Write summary, timeline, picture and page; returns the summary."""
        output: Path = self._options.output
        output.mkdir(parents=True, exist_ok=True)
        observer = played.observer
        live = Live(
            story=self._story,
            facts=observer.facts,
            changes=observer.recorder.changes,
            tokens=played.tokens,
            tpot_buckets=played.tpot_buckets,
            pod_seconds=played.pod_seconds,
            loads={name: load.counts() for name, load in played.loads.items()},
            missed_looks=observer.missed,
        )
        document = summarize(live, arms, self._times | {"total": self._elapsed_s()})
        timeline = {name: [one.as_dict() for one in seen] for name, seen in observer.timeline.items()}
        (output / "summary.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        (output / "timeline.json").write_text(json.dumps(timeline) + "\n")
        from demo import plot  # here, since nobody should wait for matplotlib before the first live line

        arrivals_s = [request.arrival_s for request in played.loads[scenario.SERVICE].requests]
        objective_s = observer.facts[scenario.SERVICE].objective_s or 0.0
        plot.draw(output / "demo.png", timeline[scenario.SERVICE], arrivals_s, document, 1e3 * objective_s)
        page.write(output / "index.html", document, output / "demo.png", self._command)
        self.results = output
        return document

    @property
    def _command(self) -> str:
        words = ["--once"] if self._options.once else []
        if self._options.seconds != DEFAULT_S:
            words.append(f"--seconds {self._options.seconds:g}")
        if self._options.seed:
            words.append(f"--seed {self._options.seed}")
        return f'make demo DEMO_ARGS="{" ".join(words)}"' if words else "make demo"

    def _say(self, text: str) -> None:
        self._console.print(f"[{self._elapsed_s():5.1f} s] {text}", markup=False)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


def _wait_for_interrupt() -> None:
    """Until Ctrl-C, which then is how the demo ends and no fault."""
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description=(__doc__ or "").partition("\n\n")[2],
        epilog="Ends with status 0 when all that the demo promises was seen, 1 when not or on a fault, 130 on Ctrl-C.",
    )
    parser.add_argument("--once", action="store_true", help="end and clean up after the summary; otherwise Ctrl-C does")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=DEFAULT_S,
        help=f"length of the live part, {SHORTEST_S:g} or more (default: %(default)g)",
    )
    parser.add_argument("--seed", type=int, default=0, help="another part of the trace (default: %(default)s)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/demo"),
        help="folder of summary, plot and page (default: %(default)s)",
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds < SHORTEST_S:
        raise argparse.ArgumentTypeError(f"the story needs {SHORTEST_S:g} s or more")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
