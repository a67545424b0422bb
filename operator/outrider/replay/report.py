"""The result of `outrider simulate` as one document: what went in, each policy's numbers, and where each loses.

The form is stable within a `SCHEMA`: fields may be added, none changes its meaning. Times are seconds, shares 0 to 1,
rates tokens a second; ``timeline`` holds one list a quantity, all as long as ``edges_s`` less one. It is the same
document whenever the same inputs are replayed by the same version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from outrider import __version__
from outrider.core.words import count
from outrider.replay import losses, summary
from outrider.replay.experiment import CONTROL_S, SCRAPE_S, Experiment
from outrider.replay.policies import POLICIES
from outrider.replay.virtual import Rendered
from outrider.simulator.noise import MODEST
from outrider.simulator.profile import DEFAULT_PROFILE

CARRIED = 0.5
"""A service of which less is within its objectives is overloaded, whatever decides about K."""
SCHEMA = "outrider.simulate/v1"


def document(experiment: Experiment, policies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything; ``policies`` are documents of `summary.summarise` in the order in which they were asked for."""
    edges_s = summary.edges_s(experiment.load.duration_s).tolist()
    behind = losses.behind_best(policies)
    described = [
        {
            "name": one["name"],
            "description": POLICIES[one["name"]],
            "totals": one["totals"],
            "timeline": {**one["timeline"], "behind_tps": behind[one["name"]]},
            "decisions": one["decisions"],
        }
        for one in policies
    ]
    return {
        "schema": SCHEMA,
        "outrider": __version__,
        "inputs": inputs(experiment),
        "edges_s": edges_s,
        "load": load_by_interval(experiment, edges_s),
        "policies": described,
        "losses": losses.losses(policies, edges_s),
        "notes": _notes(experiment, policies),
    }


def _notes(experiment: Experiment, policies: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader should know before reading the numbers."""
    notes = []
    if max(one["totals"]["requests_met"] for one in policies) < CARRIED:
        notes.append(
            f"Under no policy are {100 * CARRIED:.0f} % of the requests within the objectives: this load is more than"
            " these engines carry. Lower --rate-factor, give more --replicas, or use --autoscale."
        )
    short = {one["name"]: one["totals"]["short_share"] for one in policies if one["totals"]["short_share"]}
    if short:
        names = ", ".join(f"{name} {100 * share:.0f} %" for name, share in short.items())
        _, most = experiment.bounds(experiment.render())
        notes.append(
            f"The load asked for more than the {count(most, 'replica')} that there may be, by policy for this share of"
            f" the time: {names}."
        )
    if experiment.load.laps > 1:
        notes.append(
            f"The trace is shorter than the experiment at this rate, and was begun {experiment.load.laps} times."
        )
    return notes


def inputs(experiment: Experiment) -> dict[str, Any]:
    """Everything that decides the result of one service but the policy."""
    rendered, load = experiment.render(), experiment.load
    resolved, metadata = rendered.resolved, experiment.manifest["metadata"]
    return {
        "service": {"name": metadata["name"], "namespace": metadata.get("namespace", "default")},
        "model": experiment.manifest["spec"]["model"]["id"],
        "speculative_tokens": list(rendered.config.allowed),
        "objectives": {"tpot_s": resolved.tpot_s, "ttft_s": resolved.ttft_s, "percentile": resolved.percentile},
        "profile": DEFAULT_PROFILE,
        "replicas": _replicas(experiment, rendered),
        "trace": load.trace,
        "laps": load.laps,
        "rate_factor": load.rate_factor,
        "duration_s": load.duration_s,
        "seed": load.seed,
        "acceptance": [{"class": one.name, "share": one.share, "curve": list(one.curve)} for one in load.classes],
        "shifts": [{"at_s": one.at_s, "class": one.class_name, "curve": list(one.curve)} for one in load.shifts],
        "noise": asdict(MODEST),
        "scrape_s": SCRAPE_S,
        "control_s": CONTROL_S,
    }


def _replicas(experiment: Experiment, rendered: Rendered) -> dict[str, Any]:
    """How many replicas there may be, what one takes, and how long it takes to start."""
    common = {"gpus_each": rendered.resolved.gpus, "gpus": experiment.gpus, "cold_start_s": experiment.cold_start_s}
    if experiment.replicas is not None:
        return {"fixed": experiment.replicas, **common}
    least, most = experiment.bounds(rendered)
    return {"fixed": None, "min": least, "max": most, **common}


def load_by_interval(experiment: Experiment, edges_s: Sequence[float]) -> dict[str, list[float]]:
    """What is asked for by interval: requests and output tokens a second, and how well drafts fit."""
    max_model_len = experiment.render().settings.max_model_len
    requests = list(experiment.load.requests(max_model_len))
    times, seconds = [one.arrival_s for one in requests], np.diff(edges_s)
    arrivals, _ = np.histogram(times, edges_s)
    tokens, _ = np.histogram(times, edges_s, weights=[one.output_tokens for one in requests])
    return {
        "requests_rps": [round(float(rate), 2) for rate in arrivals / seconds],
        "tokens_tps": [round(float(rate), 1) for rate in tokens / seconds],
        "acceptance_first": [round(experiment.load.acceptance_at(start_s)[0], 4) for start_s in edges_s[:-1]],
    }
