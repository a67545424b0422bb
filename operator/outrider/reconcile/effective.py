"""Settings in force where the spec leaves them open, as status shows them."""

from __future__ import annotations

from pydantic import ValidationError

from outrider.api.defaults import Resolved
from outrider.api.model import SourceKind
from outrider.api.status import EffectiveSettings, SourceShown
from outrider.manifests.engine_container import EngineContainer
from outrider.reconcile.registry import Service

_SOURCES: dict[SourceKind, SourceShown] = {
    "hub": "Hub",
    "volume": "Volume",
    "image": "Image",
    "object_store": "ObjectStore",
}


def in_force(resolved: Resolved, container: EngineContainer) -> EffectiveSettings:
    """What an applied resource runs."""
    bounds = f"{resolved.min_replicas}-{resolved.max_replicas}"
    least, most = resolved.prompt_lookup or (None, None)
    return EffectiveSettings(
        served_name=resolved.served_name,
        engine_version=resolved.engine_version,
        engine_image=container.image,
        mode=resolved.mode,
        policy=resolved.policy,
        speculative_tokens=list(container.values),
        initial_schedule=str(container.initial_schedule),
        prompt_lookup_min=least,
        prompt_lookup_max=most,
        model_source=_SOURCES[resolved.model_source],
        gpus=resolved.gpus,
        tensor=resolved.tensor_parallel_size,
        pipeline=resolved.pipeline_parallel_size,
        data=resolved.data_parallel_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        percentile=round(100 * resolved.percentile),
        kv_cache_target_percent=resolved.kv_cache_target_percent if resolved.autoscaled else None,
        rollout=_rollout(resolved),
        replicas={"KEDA": bounds, "External": "external", "Off": str(resolved.min_replicas)}[resolved.scaler],
        termination_grace_seconds=resolved.termination_grace_s,
        startup_budget_seconds=resolved.startup_budget_s,
    )


def last_applied(service: Service) -> EffectiveSettings | None:
    """What the status last showed, which a paused service still runs; None if there is nothing."""
    stored = service.body.get("status") if service.status is None else service.status
    shown = stored.get("effective") if isinstance(stored, dict) else None
    try:
        return None if shown is None else EffectiveSettings.model_validate(shown)
    except ValidationError:
        return None  # of another version; what is not known is left out


def _rollout(resolved: Resolved) -> str:
    if resolved.strategy == "Recreate":
        return "Recreate"
    return f"RollingUpdate, maxSurge {resolved.max_surge}, maxUnavailable {resolved.max_unavailable}"
