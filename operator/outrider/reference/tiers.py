"""The tiers of ``examples/tiers`` as far as money is concerned: their cards, prices and bounds.

A price belongs to a card and comes with its source. Throughput comes from the profile that was measured on that card
with that model, and from nowhere else: scaling one from another card or model would be a guess that looks like a
measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from outrider.api.defaults import Resolved, resolve
from outrider.api.resource import SpeculativeInferenceService, parse
from outrider.core.interference import DEFAULT_SPREAD
from outrider.core.law import Arm

FOLDER = Path(__file__).parents[3] / "examples" / "tiers"
CARD_LABEL = "nvidia.com/gpu.product"


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU costs by the hour, with its share of the machine around it."""

    usd_per_gpu_hour: float
    offer: str
    source: str
    """Where it was read, and when."""


PRICES: Mapping[str, Price] = {
    "NVIDIA-L4": Price(
        0.9776,
        "AWS g6.2xlarge, one GPU, on demand, us-east-1",
        "skypilot-org/skypilot-catalog: catalogs/v8/aws/vms.csv at e385a0d, read 2026-11-28",
    ),
    "NVIDIA-H100-80GB-HBM3": Price(
        55.04 / 8,
        "AWS p5.48xlarge, eight GPUs for 55.04 USD, on demand, us-east-1",
        "datareceipts/data-receipts: 109-gpu-pricing/hyperscalers.json of 2026-11-09",
    ),
}
"""By the value of the node label that a tier selects its card with."""

MEASURED: Mapping[tuple[str, str, str, int], str] = {
    ("NVIDIA-H100-80GB-HBM3", "meta-llama/Llama-3.1-8B-Instruct", "eagle", 1): "h100-llama8b-eagle",
}
"""Profiles of the simulator by card, model (not quantised), way to draft and GPUs of a replica."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One file, as far as money is concerned."""

    name: str
    """Of the file, without its ending."""
    resource: SpeculativeInferenceService
    settings: Resolved
    card: str
    price: Price

    @property
    def usd_per_replica_hour(self) -> float:
        """Of one replica with all its GPUs."""
        return self.settings.gpus * self.price.usd_per_gpu_hour

    @property
    def profile(self) -> str | None:
        """Name of the profile that was measured on just this; None where there is none."""
        model = self.resource.spec.model
        if model.quantization is not None or model.kv_cache_dtype is not None:
            return None
        return MEASURED.get((self.card, model.id, self.resource.spec.speculation.method, self.settings.gpus))

    def replicas(self, arm: Arm, total_rps: float) -> int | None:
        """Replicas for a load within the objective and the tier's bounds; None where the upper bound is too low."""
        assert self.settings.tpot_s is not None
        needed = arm.replicas(total_rps, self.settings.tpot_s, DEFAULT_SPREAD)
        if needed is None or needed > self.settings.max_replicas:
            return None
        return max(needed, self.settings.min_replicas)


def usd_per_million(usd_per_hour: float, tokens_per_second: float) -> float:
    """Cost of a million tokens at a steady rate."""
    return usd_per_hour / 3600.0 / tokens_per_second * 1e6


def read_tier(path: Path) -> Tier:
    """Read a tier's file.

    Raises:
        ValueError: it selects no card, or one without a price.
    """
    resource = parse(yaml.safe_load(path.read_text(encoding="utf-8")))
    card = resource.spec.placement.node_selector.get(CARD_LABEL, "nothing")
    if card not in PRICES:
        raise ValueError(
            f"{path.name}: spec.placement.nodeSelector[{CARD_LABEL}] is {card}, and there is no price for it; select"
            f" one of {', '.join(sorted(PRICES))}, or add a price with its source to outrider.reference.costs"
        )
    return Tier(path.stem, resource, resolve(resource.spec), card, PRICES[card])


def read_tiers(folder: Path = FOLDER) -> list[Tier]:
    """All tiers, the cheapest first."""
    read = [read_tier(path) for path in sorted(folder.glob("*.yaml"))]
    return sorted(read, key=lambda tier: tier.usd_per_replica_hour * tier.settings.max_replicas)
