"""Walk through Outrider as a new user does, and write down what was seen: ``python docs/tour/walk.py``, ten minutes.

Writes transcript.md and the pictures of this folder, or of another one that is named. Every output is that of the
command above it, on the local cluster: long ones are cut, and a line says where. The chart is installed by Helm and its
pod is accepted by the API server; since nodes are simulated, the operator's process runs beside the cluster, with the
account, the rights and the environment that the chart gives it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from matplotlib import pyplot as plt
from PIL import Image
from rich.console import Console
from rich.text import Text

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path[:0] = [str(ROOT), str(FOLDER.parent / "dashboards")]

from draw import draw, save  # noqa: E402

from outrider.observability.__main__ import DASHBOARDS  # noqa: E402
from tests.testbed import operator  # noqa: E402
from tests.testbed.build import ensure_tools  # noqa: E402
from tests.testbed.cluster import Cluster  # noqa: E402
from tests.testbed.load import Load  # noqa: E402
from tests.testbed.service import ServiceView  # noqa: E402
from tests.testbed.tools import CONTROL, HELM  # noqa: E402
from tests.unit.replay.browser import find  # noqa: E402

WIDTH, HEIGHT = 132, 10
"""Columns and lines of the terminal."""
VARIABLES = {
    "outrider-fleet": {"namespace": ".+"},
    "outrider-service": {"namespace": "ml", "service": "chat", "gpu_hour": "2.50"},
}
VALUES = """\
prometheus:
  url: {url}
control:
  periodSeconds: 5
  scrapeIntervalSeconds: 2
"""
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" fill="#1b1f23"/>
<g transform="translate(8, 8)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Of a terminal: rich's own form loads a font from another host."""
ESCAPES = re.compile(r"\x1b\[\?[0-9;]*[a-z]|\x1b\[[0-9;]*[HJK]")


class Walk:
    """A user at a shell, who writes everything down."""

    def __init__(self, cluster: Cluster, to: Path, home: Path) -> None:
        self.cluster, self.to, self.home = cluster, to, home
        tools = ensure_tools({HELM, CONTROL}, lambda _: None)
        paths = (Path(tools[HELM]).parent, Path(tools["kubectl"]).parent, Path(sys.executable).parent)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER_", "KUBE", "HELM"))},
            "KUBECONFIG": str(cluster.kubeconfig),
            "KUBECACHEDIR": str(home / ".kube-cache"),
            "HOME": str(home),
            "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
            "COLUMNS": str(WIDTH),
            "TERM": "xterm-256color",
        }
        self.parts: list[str] = []

    def tell(self, text: str) -> None:
        """A heading or a sentence of the page."""
        self.parts.append(text)
        self.write()

    def run(self, command: str, first: int = 40, last: int = 0) -> str:
        """A command and what it printed: of a long output so many lines at its ends."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.home, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
        )  # fmt: skip
        lines = [shortened(line.rstrip()) for line in done.stdout.splitlines()]
        left_out = len(lines) - first - last
        if left_out > 3:
            lines[first : len(lines) - last] = [f"[… {left_out} lines left out]"]
        status = [f"[exit status {done.returncode}]"] if done.returncode else []
        self.tell("```text\n" + "\n".join([f"$ {command}", *lines, *status]) + "\n```")
        return done.stdout

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = 180.0) -> None:
        """Wait as a patient user does."""
        self.cluster.wait_until(what, condition, timeout_s)

    def watch_top(self, name: str, seconds: float = 12.0) -> None:
        """``outrider top`` in a terminal of its own, as the picture ``name``: what it shows when q is pressed."""
        said = terminal(["outrider", "top", "-A", "--sort", "load"], self.environment, self.home, seconds)
        frame = [part for part in said.split("\x1b[H") if "SERVICE" in part][-1]
        console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
        console.print(Text.from_ansi(ESCAPES.sub("", frame)), no_wrap=True, overflow="crop")
        (self.to / name).write_text(console.export_svg(code_format=SVG), encoding="utf-8")

    def write(self) -> None:
        """The page, with what there is so far."""
        page = "\n\n".join(self.parts) + "\n"
        # What differs by machine says nothing to a reader.
        page = page.replace(str(self.home), "~").replace(str(self.cluster.run_dir), "~/cluster")
        (self.to / "transcript.md").write_text(page, encoding="utf-8")


def shortened(line: str) -> str:
    """A line as it is, or its ends where nobody would read it to the end."""
    middle = len(line) - 320
    return line if middle < 200 else f"{line[:180]} [… {middle} characters left out …] {line[-140:]}"


def terminal(command: list[str], environment: dict[str, str], folder: Path, seconds: float) -> str:
    """What a command writes to a terminal of `WIDTH` by `HEIGHT` until q is pressed."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(
        command, stdin=other, stdout=other, stderr=other, env=environment, cwd=folder, start_new_session=True
    )
    os.close(other)
    said, end_s, pressed = b"", time.monotonic() + seconds, False
    while process.poll() is None or select.select([main], [], [], 0)[0]:
        if time.monotonic() > end_s and not pressed:
            os.write(main, b"q")
            pressed = True
        if select.select([main], [], [], 0.2)[0]:
            try:
                said += os.read(main, 65536)
            except OSError:  # the other side has closed
                break
    os.close(main)
    return said.decode(errors="replace").replace("\r\n", "\n")


def main(to: Path = FOLDER) -> None:
    """Take the walk."""
    with (
        tempfile.TemporaryDirectory() as home,
        Cluster({"keda", "prometheus", "engines"}, scrape_interval_s=1.0, nodes=3) as cluster,
    ):
        for folder in ("examples", "charts"):
            shutil.copytree(ROOT / folder, Path(home) / folder)
        walk = Walk(cluster, to, Path(home))
        install(walk)
        first_service(walk)
        began_s = time.time()
        with Load(cluster, "ml", "chat", concurrency=40, acceptance=0.85) as load:
            busy(walk)
            load.acceptance = 0.25
            gone_bad(walk)
            pictures(walk, time.time() - began_s)
            mistakes(walk)
            trouble(walk)
        leave(walk)
        operator.stop(cluster)


def install(walk: Walk) -> None:
    """The chart, by Helm."""
    walk.tell("# Transcript of the tour\n\nWritten by [walk.py](walk.py); the tour itself is [its page](index.md).")
    walk.tell("## Install")
    (walk.home / "values.yaml").write_text(VALUES.format(url=walk.cluster.prometheus_url), encoding="utf-8")
    walk.run("cat values.yaml")
    arguments = "outrider charts/outrider --namespace outrider-system --create-namespace"
    walk.run(f"helm install {arguments} --values values.yaml --wait --timeout 60s", first=60)
    deployment = walk.cluster.api.get("/apis/apps/v1/namespaces/outrider-system/deployments/outrider")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    beside = ("OUTRIDER_METRICS_PORT", "OUTRIDER_OPERATOR_NAMESPACE")
    environment = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    operator.start(walk.cluster, {name: value for name, value in environment.items() if name not in beside})
    walk.run("kubectl -n outrider-system rollout status deployment/outrider")
    walk.run("kubectl get pods -n outrider-system")


def first_service(walk: Walk) -> None:
    """From the example to a service that is ready."""
    walk.tell("## A service")
    walk.run("outrider preflight examples/01-minimal.yaml")
    walk.run("kubectl create namespace ml")
    walk.run("kubectl apply -f examples/01-minimal.yaml")
    walk.run("kubectl get sis -n ml")
    walk.run("outrider status chat -n ml")
    walk.run("kubectl wait sis/chat -n ml --for=condition=Ready --timeout=120s")
    walk.run("kubectl get sis -n ml")
    walk.run("kubectl get deployment,scaledobject,pods -n ml")
    walk.run("kubectl explain sis.spec.speculation", first=45)
    walk.run("outrider status chat -n ml")
    walk.run("outrider explain chat -n ml")
    walk.run("kubectl apply -f examples/02-fixed-batch-schedule.yaml")


def busy(walk: Walk) -> None:
    """Forty requests in flight, and a drafter that fits."""
    walk.tell("## Load: 40 requests in flight, 85 of 100 guesses right")
    view = ServiceView(walk.cluster, "ml", "chat")
    walk.wait("decision", lambda: bool(view.status().get("history")))
    walk.wait("second look", lambda: view.condition("SpeculationHealthy")[0] == "True")
    time.sleep(45)
    walk.run("kubectl get sis -n ml")
    walk.run("kubectl get sis -n ml -o wide")
    walk.run("kubectl describe sis chat -n ml | sed -n '/^Status/,$p'", first=150)
    walk.run("kubectl get events -n ml --field-selector involvedObject.name=chat", first=30)
    walk.run("outrider status -A")
    walk.run("outrider status chat -n ml")
    walk.run("outrider explain chat -n ml", first=60)
    walk.watch_top("top-busy.svg")


def gone_bad(walk: Walk) -> None:
    """The same load, and a drafter that does not fit."""
    walk.tell("## The drafter goes bad: 25 of 100 guesses right")
    view = ServiceView(walk.cluster, "ml", "chat")
    walk.wait("short drafts", lambda: view.status()["tuning"]["speculativeTokens"] <= 1)
    time.sleep(60)
    walk.run("kubectl get sis -n ml -o wide")
    walk.run("kubectl get events -n ml --field-selector involvedObject.name=chat", first=30)
    walk.run("outrider status chat -n ml")
    walk.run("outrider explain chat -n ml", first=60)
    walk.run("outrider top -A --once")
    walk.watch_top("top-bad.svg")


def pictures(walk: Walk, seconds: float) -> None:
    """The report in a browser, and the dashboards drawn from their JSON."""
    walk.tell("## Report")
    walk.run("outrider report chat -n ml --since 10m --html chat.html")
    png = walk.to / "report.png"
    find().picture(walk.home / "chat.html", walk.home / "profile", png, width=1000, height=2400)
    Image.open(png).quantize(48).save(png, optimize=True)
    for dashboard in DASHBOARDS:
        if dashboard.uid in VARIABLES:
            figure = draw(walk.cluster, dashboard.as_json(), VARIABLES[dashboard.uid], seconds)
            save(figure, walk.to / f"{dashboard.uid}.png")
            plt.close(figure)


def mistakes(walk: Walk) -> None:
    """What is refused, and in which words."""
    walk.tell("## Mistakes")
    patch = "kubectl patch sis chat -n ml --type=merge -p"
    walk.run(f"""{patch} '{{"spec":{{"autoscaling":{{"minReplicas":9}}}}}}'""")
    walk.run(f"""{patch} '{{"spec":{{"objectives":{{"tpotMilliseconds":12.5}}}}}}'""")
    walk.run("sed 's/maxSpeculativeTokens/maxSpeculativTokens/' examples/01-minimal.yaml | kubectl apply -f -")
    walk.run("sed 's/method: eagle3/method: medusa/' examples/01-minimal.yaml | kubectl apply -f -")
    walk.run("sed 's/maxSpeculativeTokens/maxSpeculativTokens/' examples/01-minimal.yaml > slip.yaml")
    walk.run("outrider preflight slip.yaml")
    walk.run("sed 's/    method/   method/' examples/01-minimal.yaml > broken.yaml; outrider preflight broken.yaml")
    walk.run("outrider status chta -n ml")
    walk.run("outrider status chat")
    walk.run("outrider top -n ml --once --prometheus http://127.0.0.1:9")


def trouble(walk: Walk) -> None:
    """A pause, and an image that is not there."""
    walk.tell("## A pause")
    view = ServiceView(walk.cluster, "ml", "chat")
    walk.run("""kubectl patch sis chat -n ml --type=merge -p '{"spec":{"paused":true}}'""")
    walk.run("kubectl wait sis/chat -n ml --for=condition=Paused --timeout=60s")
    walk.run("kubectl get sis chat -n ml")
    walk.run("outrider status chat -n ml")
    walk.run("""kubectl patch sis chat -n ml --type=merge -p '{"spec":{"paused":null}}'""")
    walk.tell("## An image that is not there")
    patch = """'{"spec":{"engine":{"image":"registry.invalid/engine:1"}}}'"""
    walk.run(f"kubectl patch sis chat -n ml --type=merge -p {patch}")
    walk.wait("word of it", lambda: "ImageNotPulled" in str(view.resource()))
    time.sleep(5)
    walk.run("kubectl get sis chat -n ml")
    walk.run("outrider status chat -n ml")
    walk.run("kubectl get pods -n ml")
    walk.run("kubectl get events -n ml --field-selector involvedObject.name=chat,type=Warning")
    walk.run("""kubectl patch sis chat -n ml --type=merge -p '{"spec":{"engine":{"image":null}}}'""")
    walk.run("kubectl wait sis/chat -n ml --for=condition=Ready --timeout=120s")
    walk.run("kubectl get sis chat -n ml")


def leave(walk: Walk) -> None:
    """The end."""
    walk.tell("## The end")
    walk.run("kubectl delete sis code -n ml --timeout=60s")
    walk.run("helm uninstall outrider --namespace outrider-system --wait")
    walk.run("kubectl get sis,deployments -n ml")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
