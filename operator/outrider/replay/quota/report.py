"""The result of `outrider simulate --gpu-quota` as one document: each service's numbers, and what was shared out when.

As with `outrider.replay.report`, fields may be added within a `SCHEMA`, and none changes its meaning; a service's
``totals`` and ``timeline`` are those of a policy there, and more. Numbers of replicas and GPUs are whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from outrider import __version__
from outrider.core.words import count
from outrider.replay import report, summary
from outrider.replay.experiment import CONTROL_S, SCRAPE_S, Run
from outrider.replay.quota.experiment import QuotaExperiment, namespace_of
from outrider.replay.quota.run import Move, QuotaRun, Standing
from outrider.replay.words import clock
from outrider.simulator.results import FleetSample

SCHEMA = "outrider.simulate-quota/v1"

Looks = Sequence[tuple[float, Standing]]
"""Of one service, by time."""


def document(experiment: QuotaExperiment, done: QuotaRun) -> dict[str, Any]:
    """Everything."""
    rendered, edges_s = experiment.render(), summary.edges_s(experiment.duration_s).tolist()
    first = next(iter(experiment.services))
    gpus = {name: one.resolved.gpus for name, one in rendered.items()}
    services = [_service(experiment, name, done, gpus[name], edges_s) for name in experiment.services]
    together = _together(experiment, done, gpus, services, edges_s)
    return {
        "schema": SCHEMA,
        "outrider": __version__,
        "inputs": {
            "namespace": namespace_of(experiment.services[first]),
            "gpu_resource": rendered[first].resolved.gpu_resource,
            "gpu_quota": experiment.gpus,
            "settle_s": experiment.settle_s,
            "duration_s": experiment.duration_s,
        },
        "edges_s": edges_s,
        "verdict": _verdict(experiment, together["totals"], services),
        "together": together,
        "services": services,
        "moves": [
            {"at_s": one.at_s, "donor": one.donor, "gainer": one.gainer, "reason": one.reason} for one in done.moves
        ],
        "notes": _notes(experiment, services),
    }


def _service(
    experiment: QuotaExperiment, name: str, done: QuotaRun, gpus: int, edges_s: Sequence[float]
) -> dict[str, Any]:
    one, run = experiment.services[name], done.runs[name]
    resolved = one.render().resolved
    found = summary.summarise(run, resolved.tpot_s, resolved.ttft_s, gpus)
    looks = [(at_s, standings[name]) for at_s, standings in done.looks]
    limited = _limited(looks, experiment.duration_s)
    within = [sample for sample in run.result.timeline if sample.time_s <= run.result.duration_s]
    return {
        "name": name,
        "priority": experiment.priorities.get(name, 0),
        "inputs": report.inputs(one),
        "load": report.load_by_interval(one, edges_s),
        "totals": found["totals"]
        | _shared(run, looks, within)
        | {"limited_s": sum(one["to_s"] - one["from_s"] for one in limited)},
        "timeline": found["timeline"] | _course(looks, within, gpus, edges_s),
        "replica_changes": _changes(within),
        "limited": limited,
        "decisions": found["decisions"],
    }


def _shared(run: Run, looks: Looks, samples: Sequence[FleetSample]) -> dict[str, Any]:
    """What the quota did to a service, in seconds and a share of the time."""
    short = sum(one.wanted is not None and one.wanted > one.most for _, one in looks)
    below = max(
        (sum(1 for _ in part) for is_below, part in groupby(one.below for _, one in looks) if is_below), default=0
    )
    return {
        "mean_replicas": round(run.result.mean_replicas, 2),
        "short_share": round(short / len(looks), 4) if looks else 0.0,
        "refused_s": SCRAPE_S * sum(one.replicas < one.asked for one in samples),
        "longest_below_share_s": CONTROL_S * below,
    }


def _course(looks: Looks, samples: Sequence[FleetSample], gpus: int, edges_s: Sequence[float]) -> dict[str, list[Any]]:
    """By interval: what it might have at the end, the most that it wanted, and the most GPUs that its pods held."""
    most, wanted, held = [], [], []
    for begin_s, end_s in pairwise(edges_s):
        # Intervals may be shorter than a control period: the last look counts until the next one.
        seen = [one for at_s, one in looks if at_s <= end_s]
        inside = [one.wanted for at_s, one in looks if begin_s < at_s <= end_s] or [one.wanted for one in seen[-1:]]
        most.append(seen[-1].most if seen else None)
        wanted.append(max((one for one in inside if one is not None), default=None))
        held.append(max((gpus * one.pods for one in samples if begin_s < one.time_s <= end_s), default=None))
    return {"most": most, "wanted": wanted, "gpus": held}


def _changes(samples: Sequence[FleetSample]) -> list[dict[str, Any]]:
    """From when on how many replicas there were."""
    found = [(next(part).time_s, number) for number, part in groupby(samples, key=lambda one: one.replicas)]
    return [{"at_s": 0.0 if at == 0 else at_s, "replicas": number} for at, (at_s, number) in enumerate(found)]


def _limited(looks: Looks, until_s: float) -> list[dict[str, Any]]:
    """The spans in which the condition CapacityLimited was True, with its first message."""
    spans = []
    for reason, part in groupby(looks, key=lambda look: look[1].reason):
        span = list(part)
        if reason:
            message = span[0][1].message
            to_s = min(span[-1][0] + CONTROL_S, until_s)
            spans.append({"from_s": span[0][0], "to_s": to_s, "reason": reason, "message": message})
    return spans


def _together(
    experiment: QuotaExperiment,
    done: QuotaRun,
    gpus: Mapping[str, int],
    services: Sequence[Mapping[str, Any]],
    edges_s: Sequence[float],
) -> dict[str, Any]:
    held: dict[float, int] = {}
    for name, run in done.runs.items():
        for sample in run.result.timeline:
            if sample.time_s <= experiment.duration_s:
                held[sample.time_s] = held.get(sample.time_s, 0) + gpus[name] * sample.pods
    totals = [one["totals"] for one in services]
    requests = sum(one["requests"] for one in totals)
    met = sum(one["requests_met"] * one["requests"] for one in totals)
    return {
        "totals": {
            "requests": requests,
            "requests_met": round(met / requests, 4) if requests else 1.0,
            "goodput_tps": round(sum(one["goodput_tps"] for one in totals), 1),
            "gpu_seconds": round(sum(one["gpu_seconds"] for one in totals), 1),
            "most_gpus": max(held.values(), default=0),
            "samples_over_quota": sum(number > experiment.gpus for number in held.values()),
            "moves": len(done.moves),
            "moves_back": moves_back(done.moves),
        },
        "timeline": {
            "gpus": [
                max((number for at_s, number in held.items() if begin_s < at_s <= end_s), default=None)
                for begin_s, end_s in pairwise(edges_s)
            ]
        },
    }


def moves_back(moves: Sequence[Move]) -> int:
    """Moves whose donor had gained from its gainer before."""
    gained: set[tuple[str, str]] = set()
    back = 0
    for one in moves:
        back += (one.donor, one.gainer) in gained
        gained.add((one.gainer, one.donor))
    return back


def _verdict(
    experiment: QuotaExperiment, totals: Mapping[str, Any], services: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Whether the quota held, who waited for its share, and what went to and fro."""
    over = totals["samples_over_quota"]
    held = f"At most {totals['most_gpus']} of {count(experiment.gpus, 'GPU')} were held at once"
    waits = [
        f"{one['name']} for {clock(one['totals']['longest_below_share_s'])} on end"
        for one in services
        if one["totals"]["longest_below_share_s"]
    ]
    moved = "No running replica was given up for another service."
    if totals["moves"]:
        back = f"{totals['moves_back']} of these moves went back" if totals["moves_back"] else "none went back"
        moved = f"{count(totals['moves'], 'running replica')} given up for another service; {back}."
    return [
        f"{held}{f', more than the quota at {over} scrapes' if over else ', never more than the quota'}.",
        f"Below its fair share: {', '.join(waits)} at most." if waits else "Nobody was ever below its fair share.",
        moved,
    ]


def _notes(experiment: QuotaExperiment, services: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader should know before reading the numbers."""
    notes = []
    by_trace: dict[str, list[str]] = {}
    for name, one in experiment.services.items():
        by_trace.setdefault(one.load.trace, []).append(name)
        placement = one.render().resource.spec.placement
        if placement.priority_class_name is not None and name not in experiment.priorities:
            notes.append(
                f"{name} names the PriorityClass {placement.priority_class_name}, whose number is not in the manifest;"
                f" it counts as 0: give --priority {name}:NUMBER."
            )
    for trace, names in by_trace.items():
        if len(names) > 1:
            notes.append(f"{' and '.join(names)} replay the same trace, {trace}: their peaks fall together.")
    return notes + [
        f"Of {service['name']}'s requests less than {100 * report.CARRIED:.0f} % are within the objectives: its load is"
        " more than its share carries."
        for service in services
        if service["totals"]["requests_met"] < report.CARRIED
    ]
