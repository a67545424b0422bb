"""What the operator believes of a service, read back from its memory and worked out by its own core."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.cli.connection import Cluster, Manifest
from outrider.core import acceptance, learning, memory
from outrider.core.acceptance import MIN_DRAFTS, Estimate
from outrider.core.latency import LatencyModel
from outrider.core.objective import Yield
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState
from outrider.errors import InvalidSpec, KubeError
from outrider.manifests import config_maps
from outrider.replay.virtual import render

PERIOD_S = 15.0
"""Of a control pass: only what times are rounded to depends on it."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one K is expected to give at one batch size."""

    num_speculative_tokens: int
    tokens_per_step: float
    tpot_s: float
    error: float
    """Standard deviation of the step time, relative."""
    measured: bool
    """Whether it was measured near by."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """The controller's configuration and state, and what it predicts from them."""

    config: ControllerConfig
    state: ControllerState
    predicted: Yield | None
    """None until step times were measured."""

    @property
    def model(self) -> LatencyModel | None:
        """The law of step times; None until any was measured."""
        return None if self.state.fitted is None else self.state.fitted.model

    @property
    def survival(self) -> tuple[Estimate, ...]:
        """Share of drafts that are kept up to each position; empty while too few were counted."""
        if self.state.acceptance.drafts < MIN_DRAFTS:
            return ()
        return acceptance.survival(self.state.acceptance, max(self.config.values))

    @property
    def usual_batch(self) -> int | None:
        """The batch size at which most steps ran of late; None before any was measured."""
        cells = self.state.latency.cells.values()
        most = max(cells, key=lambda cell: cell.steps, default=None)
        return None if most is None else max(1, round(most.mean_batch))

    def expect(self, batch: int) -> list[Expectation]:
        """Every K that may be chosen, ascending; empty while nothing can be predicted."""
        predicted = self.predicted
        if predicted is None or self.state.acceptance.drafts < MIN_DRAFTS:
            return []
        at = min(max(1, batch), predicted.max_batch_size) - 1
        lengths = acceptance.acceptance_lengths(self.state.acceptance, max(predicted.values))
        rows = ((k, predicted.values.index(k)) for k in predicted.values if k in self.config.allowed)
        return [
            Expectation(
                k,
                lengths[k].value,
                float(predicted.tpot_s[row, at]),
                float(predicted.time_error[row, at]),
                not bool(predicted.extrapolated[row, at]),
            )
            for k, row in rows
        ]

    def bars(self, now_s: float) -> Iterator[str]:
        """K that may not come back for a while, a sentence each."""
        for bar in self.state.bars:
            if bar.until_s > now_s:
                yield (
                    f"K {bar.num_speculative_tokens} is barred at batch {bar.first} to {bar.last} for another"
                    f" {(bar.until_s - now_s) / 60:.0f} min: it proved worse there than predicted"
                    + (f", {bar.times} times by now" if bar.times > 1 else "")
                )


async def recall(kube: Cluster, body: Manifest) -> Beliefs | str:
    """Read the memory document; why it is of no use where it is not."""
    metadata = body["metadata"]
    name = config_maps.memory_name(metadata["name"])
    try:
        stored = await kube.get("v1", "ConfigMap", metadata["namespace"], name)
    except KubeError as error:
        return f"the operator's memory cannot be read: {error.message}"
    if stored is None:
        return f"the operator has remembered nothing yet: there is no ConfigMap {name}"
    return understand(body, stored.get("data", {}).get(config_maps.MEMORY_KEY, ""))


def understand(body: Mapping[str, Any], text: str) -> Beliefs | str:
    """Beliefs of a resource and its memory document, or why there are none."""
    try:
        config = render(body, PERIOD_S).config
    except InvalidSpec as error:
        return f"the resource cannot work as it stands: {error.message}"
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    state, fault = memory.from_document(document, config)
    if fault is not None:
        return f"the operator's memory cannot be used: {fault}"
    # The store is not asked again: what was learnt by the last pass is what decided.
    lesson = learning.learn(config, state, Missing("NotAskedYet", "read from memory"))
    return Beliefs(config, lesson.state, lesson.predicted)
