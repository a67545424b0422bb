"""Draw trials of changes from a real run: ``python docs/canary/draw.py``, about six minutes.

Three services on the local cluster get a change each, all at once; what their status and Prometheus say is written to
``run.json`` and drawn. ``--again`` draws what is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.testbed.cluster import Cluster  # noqa: E402
from tests.testbed.dashboards import course  # noqa: E402
from tests.testbed.service import ServiceView  # noqa: E402
from tests.testbed.test_verdicts import REPLICAS, on_trial  # noqa: E402
from tests.testbed.trials import outrider_with, revisions  # noqa: E402

HERE = Path(__file__).parent
RUN = HERE / "run.json"
TITLES = {
    "better-draft": "A draft that accepts 15 % more tokens a step",
    "worse-draft": "A draft that accepts 15 % fewer",
    "equal-image": "A rebuilt image",
}
PACE = (
    'sum by (serving_outrider_dev_track) (rate(vllm:generation_tokens_total{namespace="%s"}[12s])) /'
    ' sum by (serving_outrider_dev_track) (avg_over_time(vllm:num_requests_running{namespace="%s"}[12s]))'
)
EVERY_S, AFTER_S, LONGEST_S = 2.0, 20.0, 900.0
COLORS = {"stable": "#1f77b4", "candidate": "#d95f02"}


def main() -> None:
    """Play and draw, or draw alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="draw run.json without a run")
    if not parser.parse_args().again:
        RUN.write_text(json.dumps(played(), separators=(",", ":")) + "\n")
    run = json.loads(RUN.read_text())
    for name, title in TITLES.items():
        drawn(title, run[name], HERE / f"{name}.svg")


def played() -> dict[str, Any]:
    """What was seen of each service: looks at its status, and the pace of its tracks."""
    gpus = (REPLICAS + 1) * len(TITLES)
    with (
        Cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=1, gpus_per_node=gpus) as cluster,
        outrider_with(cluster),
        on_trial(cluster, TITLES) as views,
    ):
        began_s = time.time()
        looks: dict[str, list[dict[str, Any]]] = {name: [] for name in views}
        over_s = None
        while over_s is None or time.time() < over_s + AFTER_S:
            for name, view in views.items():
                looks[name].append({"at": round(time.time() - began_s, 1), **look(view)})
            if over_s is None and all(one[-1]["outcome"] for one in looks.values()):
                over_s = time.time()
            if time.time() > began_s + LONGEST_S:
                sys.exit(f"no verdict within {LONGEST_S:.0f} s: {[one[-1] for one in looks.values()]}")
            time.sleep(EVERY_S)
        return {name: {"looks": looks[name], "pace": pace(cluster, name, began_s)} for name in views}


def look(view: ServiceView) -> dict[str, Any]:
    """The candidate as status shows it, and how its trial ended."""
    found = revisions(view)
    candidate, past = found.get("candidate", {}), found.get("history", [{}])
    fields = {"gain": "gainPercent", "low": "lowPercent", "high": "highPercent"}
    figures = {name: float(candidate[field]) for name, field in fields.items() if field in candidate}
    ended = past[0] if past else {}
    return {
        "stage": candidate.get("stage", ""),
        "boot": candidate.get("boot", 0),
        **figures,
        "outcome": ended.get("outcome", ""),
        "reason": ended.get("reason", ""),
    }


def pace(cluster: Cluster, name: str, began_s: float) -> dict[str, list[list[float]]]:
    """Tokens a second of one running request, by track: pairs of seconds and values."""
    now_s = time.time()
    return {
        one["metric"]["serving_outrider_dev_track"]: [
            [round(float(at) - began_s, 1), round(float(value), 2)]
            for at, value in one["values"]
            if value != "NaN" and value != "+Inf"
        ]
        for one in course(cluster, PACE % (name, name), now_s - began_s, now_s)
    }


def drawn(title: str, run: Mapping[str, Any], path: Path) -> None:
    """Pace above, gain and stages below."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(3, 2))
    for track, points in sorted(run["pace"].items(), reverse=True):
        above.plot(*zip(*points, strict=True), label=track, color=COLORS[track], linewidth=1.2)
    above.set_ylabel("tokens/s of one request")
    above.set_ylim(bottom=0)
    above.legend(frameon=False, loc="lower right")
    above.set_title(title, loc="left", weight="bold")
    looks = run["looks"]
    known = [one for one in looks if "gain" in one]
    at = [one["at"] for one in known]
    below.axhline(0, color="black", linewidth=0.7)
    below.plot(at, [one["gain"] for one in known], color=COLORS["candidate"], label="gain")
    sure = [one for one in known if "low" in one and "high" in one]
    below.fill_between(
        [one["at"] for one in sure],
        [one["low"] for one in sure],
        [one["high"] for one in sure],
        color=COLORS["candidate"],
        alpha=0.2,
        label="bounds",
    )
    below.set_ylim(-20, 20)
    below.set_ylabel("gain, %")
    below.set_xlabel("seconds since the candidate served")
    below.legend(frameon=False, loc="lower right")
    for axes in (above, below):
        staged(axes, looks)
        axes.grid(alpha=0.3)
    last = looks[-1]
    figure.text(0.01, 0.01, f"{last['outcome']}: {last['reason']}", fontsize=7.5, wrap=True)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def staged(axes: Axes, looks: list[dict[str, Any]]) -> None:
    """A line where stage or boot change."""
    before = looks[0]
    for one in looks[1:]:
        if (one["stage"], one["boot"]) != (before["stage"], before["boot"]):
            axes.axvline(one["at"], color="#888888", linewidth=0.7, linestyle=":")
            text = one["stage"] or one["outcome"]
            axes.text(one["at"], axes.get_ylim()[1], f" {text}", fontsize=6, rotation=90, va="top")
        before = one


if __name__ == "__main__":
    main()
