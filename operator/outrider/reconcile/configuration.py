"""What a control loop is told of one service: from its resource and the engine that was rendered for it."""

from __future__ import annotations

from outrider.api.defaults import Resolved
from outrider.core.state import ControllerConfig
from outrider.manifests.engine_container import EngineContainer


def controller_config(
    resolved: Resolved, container: EngineContainer, *, period_s: float, frozen: bool = False
) -> ControllerConfig:
    """The configuration of a service's controller; the demo's replay asks for the same one."""
    return ControllerConfig(
        mode=resolved.mode,
        policy=resolved.policy,
        values=container.values,
        min_speculative_tokens=resolved.min_speculative_tokens,
        max_batch_size=resolved.max_num_seqs,
        capture_size=container.capture_size,
        initial=container.initial_schedule,
        tpot_objective_s=resolved.tpot_s,
        percentile=resolved.percentile,
        period_s=period_s,
        frozen=frozen,
        ttft_objective_s=resolved.ttft_s,
    )
