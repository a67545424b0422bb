"""Small services that need replicas at a few requests in flight, and loads that rise and fall by the minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.replay.experiment import Experiment
from outrider.replay.load import AcceptanceClass, Load
from outrider.replay.quota.experiment import QuotaExperiment
from outrider.replay.virtual import SAMPLE, read_manifest

WINDOW_S = 60.0
SETTLE_S = 60.0
"""What is ten minutes for those who do not wait for a test."""
CLASSES = (AcceptanceClass("all", 1.0, (0.8, 0.6, 0.4)),)


def manifest(name: str, most: int = 6, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """The package's resource under another name, with batches of four at most."""
    found = read_manifest(SAMPLE)
    found["metadata"]["name"] = name
    found["spec"] |= {
        "engine": {"maxNumSeqs": 4},
        "autoscaling": {"minReplicas": 1, "maxReplicas": most},
        "resources": {"gpus": gpus},
    } | spec
    return found


def rates(folder: Path, name: str, rates_rps: Sequence[float], output_tokens: int = 200) -> str:
    """A file of arrivals by the minute."""
    path = folder / f"{name}.csv"
    rows = ["window_start_s,rate_rps,mean_input_tokens,mean_output_tokens,cv_weighted"]
    rows += [f"{WINDOW_S * number},{rate},200,{output_tokens},1.0" for number, rate in enumerate(rates_rps)]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def service(trace: str, minutes: int, resource: Mapping[str, Any], **more: Any) -> Experiment:
    """With pods that start in 10 s."""
    known: dict[str, Any] = {"replicas": None, "cold_start_s": 10.0} | more
    return Experiment(resource, Load(trace, 1.0, WINDOW_S * minutes, CLASSES), **known)


def two(folder: Path, gpus: int, chat: Sequence[float], code: Sequence[float], **more: Any) -> QuotaExperiment:
    """Chat and code with requests a second by the minute."""
    loads = {"chat": chat, "code": code}
    services = {name: service(rates(folder, name, one), len(one), manifest(name)) for name, one in loads.items()}
    return QuotaExperiment(services, gpus, settle_s=SETTLE_S, **more)
