"""What each service wants of its autoscaler, and the most that it may have: by its own bounds and by its share of the
namespace's GPUs."""

from __future__ import annotations

from outrider.api.conditions import CAPACITY_LIMITED, Condition, condition
from outrider.api.defaults import Resolved
from outrider.core import demand
from outrider.core.observation import Observation
from outrider.core.series import Missing
from outrider.core.target import desired_replicas, least_requests
from outrider.core.words import count
from outrider.reconcile import by_rollout
from outrider.reconcile.registry import Service


def observe(service: Service, window: Observation | Missing, now_s: float) -> int | None:
    """Keep what the load of this window needs; returns the replicas to ask an autoscaler for, None without data, or
    where nobody scales."""
    resolved = service.resolved
    if service.state is None or resolved is None or isinstance(window, Missing):
        service.demand = demand.unseen(service.demand, now_s)
        return None
    unmeasured = len(service.ready_pods) - len({engine.pod for engine in window.engines})
    wanted = desired_replicas(
        window.in_flight,
        service.state.target,
        unmeasured=unmeasured,
        present=_present(service),
        least=_least(service),
    )
    short = demand.shortfall(window, resolved.percentile, resolved.tpot_s, resolved.ttft_s)
    service.demand = demand.seen(service.demand, wanted, short, now_s)
    if service.bounds is None:
        return None  # nobody scales; a candidate that needs a place asks what the load needs all the same
    least, most = service.bounds
    return min(max(least, wanted), most, beside_candidate(service, resolved))


def stand(service: Service, now_s: float) -> None:
    """What was wanted at the last look is wanted still."""
    if service.demand.looks:
        service.demand = demand.seen(service.demand, service.demand.looks[-1][1], service.demand.shortfall, now_s)


def held_requests(service: Service, window: Observation | Missing) -> int | None:
    """The least that KEDA's in-flight trigger is to see, so that no replica goes that would have to come back; None
    where nothing is to be kept, or another trigger does."""
    resolved, state = service.resolved, service.state
    if resolved is None or state is None or isinstance(window, Missing):
        return None
    if resolved.scaler != "KEDA" or resolved.scale_by != "Requests":
        return None
    return least_requests(state.target, present=_present(service), least=_least(service)) or None


def _present(service: Service) -> int:
    deployment = service.children.get(f"Deployment/{service.key[1]}")
    return len(service.ready_pods) if deployment is None else int(deployment["spec"].get("replicas", 1))


def _least(service: Service) -> int:
    return 0 if service.outcome is None else service.outcome.least_replicas


def within_share(service: Service, most: int) -> int:
    """The most replicas that a service of such an upper bound may have now. One is always allowed: what wakes the first
    is no number of ours, and the quota itself is enforced."""
    if service.share is None:
        return most
    least = 1 if service.bounds is None else max(1, service.bounds[0])
    return min(most, max(least, service.share.most))


def beside_candidate(service: Service, resolved: Resolved) -> int:
    """The most replicas that the stable track may have now: a candidate holds the GPUs of one within the budget, or has
    the place of one."""
    most, trial = within_share(service, resolved.max_replicas), service.trial
    if resolved.bounded_by_gpus and by_rollout.beside(service, resolved):
        most = min(most, max(1, resolved.max_replicas - 1))  # a new engine serves before the old one goes
    if trial is None:
        return most
    if trial.placed and resolved.bounded_by_gpus:
        most = min(most, resolved.max_replicas - 1)
    if trial.freed is not None:
        most = min(most, trial.freed)
    return max(1, most)


def bound(service: Service, resolved: Resolved) -> tuple[int, str]:
    """The most replicas that the service may have now, and the field or object that says so."""
    most, within = beside_candidate(service, resolved), within_share(service, resolved.max_replicas)
    if most < within:
        return most, "gpuBudget" if service.trial is None else "candidate"
    if most < resolved.max_replicas:
        return most, "ResourceQuota"
    return most, "gpuBudget" if resolved.bounded_by_gpus else "maxReplicas"


def limited(service: Service, resolved: Resolved, generation: int) -> Condition | None:
    """Present and True while the load has needed more replicas than the service may have for a minute."""
    wanted = service.demand.wanted
    if not service.limited or wanted is None or resolved.scaler == "Off" or not service.ready_pods:
        return None
    most, by = bound(service, resolved)
    if wanted <= most:
        return None  # the bound was raised a moment ago
    needs = f"the load needs {count(wanted, 'replica')}, and there may be {most}"
    if by == "ResourceQuota":
        assert service.share is not None
        message = f"{needs} now: {service.share.words}; raise the quota, or lower maxReplicas of another service"
        return condition(CAPACITY_LIMITED, True, "GPUQuota", message, generation)
    if by == "candidate":
        message = f"{needs} while a candidate has the place of one: wait for its verdict, or take the change back"
        return condition(CAPACITY_LIMITED, True, "Candidate", message, generation)
    if by == "gpuBudget":
        message = (
            f"{needs} of {count(resolved.gpus, 'GPU')} each within spec.autoscaling.gpuBudget, {resolved.gpu_budget}:"
            " raise it"
        )
        return condition(CAPACITY_LIMITED, True, "GPUBudget", message, generation)
    message = f"{needs}, by spec.autoscaling.maxReplicas: raise it"
    return condition(CAPACITY_LIMITED, True, "MaxReplicas", message, generation)
