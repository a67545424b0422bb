"""K by roll-out, for engines that cannot be told a schedule while they run: `outrider.core.one_k`, fed with what the
cluster shows.

The K that was chosen is part of the pod template, through the engine that is rendered (`outrider.engine.one_k`), and of
the memory document; the user's resource is never written. A change is noted as any change of the schedule is.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.api.defaults import Resolved
from outrider.core import graphs
from outrider.core import schedule as schedules
from outrider.core.decision import Change
from outrider.core.observation import Observation
from outrider.core.one_k import decide
from outrider.core.one_k_state import Sight, about
from outrider.core.series import Missing
from outrider.core.state import HISTORY
from outrider.core.words import count
from outrider.engine import one_k as engines
from outrider.engine.command_line import initial_schedule, speculative_tokens_values, takes_table
from outrider.reconcile import rollout
from outrider.reconcile.registry import Service

START_S = 300.0
"""What a start is taken to cost where none was seen."""
MISSED = 0.05
"""How far an objective must be missed, smoothed (`outrider.core.demand`), before the cost of a restart does not
count."""
UNPLACED_S = 120.0
"""How long a new engine may wait for a node."""
CRASHES = 2
"""Ends of a new engine that nobody asked for."""


def follow(service: Service, increment: Observation | Missing, settle_s: float, now_s: float) -> None:
    """Decide for a service whose engines must be restarted for another K; of any other nothing is said.

    To be called behind the control of a pass: a K to roll out is one more change of its outcome.
    """
    service.one_k_said = None
    engine, config = service.engine, service.config
    if engine is None or config is None or engine.mode not in engines.ADAPTED:
        return
    service.one_k = about(service.one_k, engines.subject(engine), engines.told_of(engine))
    if takes_table(engine) and _told_live(service):
        if service.one_k.chosen is not None and not config.frozen:
            service.one_k = replace(service.one_k, chosen=None, before=None, rolling=True)
            _note(service, "the engines take schedules while they run by now", now_s)
        elif service.one_k.rolling and _settled(service):
            service.one_k = replace(service.one_k, rolling=False)
        return
    if takes_table(engine) and not _refused(service):
        return  # not known yet
    if config.policy != "Goodput":
        service.one_k_said = f"policy {config.policy} needs engines that are told K while they run: K stays"
        return
    found = decide(service.one_k, _sight(service, settle_s, now_s), increment)
    service.one_k, service.one_k_said = found.state, found.reason
    if found.rolls is not None:
        _note(service, found.reason, now_s)


def beside(service: Service, resolved: Resolved) -> bool:
    """Whether a new engine may serve before the old one goes while a K is rolled out."""
    most = _most(service, resolved)
    return service.one_k.rolling and (most is None or _replicas(service) + 1 <= most)


def _told_live(service: Service) -> bool:
    ready = service.ready_pods
    return bool(ready) and all(pod.uid in service.acknowledged for pod in ready)


def _refused(service: Service) -> bool:
    """No engine takes a schedule, and the image is not ours: there is no plugin in it."""
    ready = service.ready_pods
    return not service.controllable and bool(ready) and all(pod.uid in service.refusals for pod in ready)


def _note(service: Service, reason: str, now_s: float) -> None:
    """Take the K over as the schedule of the service, so that it is remembered, announced and rendered."""
    assert service.state is not None
    assert service.config is not None
    assert service.engine is not None
    engine = engines.given(service.engine, service.choice)
    wanted = initial_schedule(engine) if engine.speculates else schedules.constant(0, engine.max_num_seqs)
    change = Change(now_s, "Schedule", str(service.state.schedule), str(wanted), reason)
    service.state = replace(
        service.state,
        schedule=wanted,
        generation=service.state.generation + 1,
        schedule_changed_s=now_s,
        trial=None,
        probe=None,
        history=(change, *service.state.history)[:HISTORY],
    )
    service.config = replace(service.config, values=speculative_tokens_values(engine), initial=wanted)
    service.wanted = None
    if service.outcome is not None:
        changes = (*service.outcome.changes, change)
        service.outcome = replace(service.outcome, state=service.state, changes=changes)


def _sight(service: Service, settle_s: float, now_s: float) -> Sight:
    engine, config, resolved = service.engine, service.config, service.resolved
    assert engine is not None
    assert config is not None
    assert resolved is not None
    limit = graphs.capture_limit((engine.max_speculative_tokens,), engine.max_num_seqs)
    return Sight(
        present=config.initial.at(1),
        own=engines.own(engine),
        values=engines.values(engine),
        max_batch_size=config.max_batch_size,
        capture_size=limit,
        settled=_settled(service),
        stuck=_stuck(service, now_s) if service.one_k.rolling else "",
        start_s=START_S if service.cold_start_s is None else service.cold_start_s,
        settle_s=settle_s,
        missed=service.demand.shortfall > MISSED,
        blocked=_blocked(service, resolved),
        acting=resolved.mode == "Adaptive" and not config.frozen,
        now_s=now_s,
    )


def _settled(service: Service) -> bool:
    """All engines have the template that they are to have."""
    deployment = service.children.get(f"Deployment/{service.key[1]}")
    if deployment is None or service.wanted is None or rollout.revision(deployment) != service.wanted:
        return False
    ready = service.ready_pods
    return (
        bool(ready)
        and all(pod.revision == service.wanted for pod in ready)
        and not rollout.under_way(deployment, service.stable_pods)
    )


def _stuck(service: Service, now_s: float) -> str:
    """Why the new engines do not come; the old ones serve meanwhile."""
    deployment = service.children.get(f"Deployment/{service.key[1]}")
    if deployment is None or rollout.revision(deployment) != service.wanted:
        return ""
    new = [pod for pod in service.stable_pods if pod.revision == service.wanted and not pod.terminating]
    ends = [pod.ending for pod in new if pod.ending is not None]
    if sum(one.life + 1 for one in ends) >= CRASHES:
        return f"the engine crashed: {ends[0].words}"
    since_s = [pod.pending_since_s for pod in new if pod.unscheduled and pod.pending_since_s is not None]
    if since_s and now_s > min(since_s) + UNPLACED_S:
        return next(pod.unscheduled for pod in new if pod.unscheduled)
    if rollout.deadline_exceeded(deployment):
        return "the update makes no progress"
    return ""


def _blocked(service: Service, resolved: Resolved) -> str:
    """Why engines cannot be replaced without loss now; empty if they can."""
    if service.trial is not None:
        return "it waits until the candidate's trial is over"
    if resolved.strategy == "Recreate":
        return "it is not rolled out, since spec.rollout.strategy Recreate would interrupt the service"
    most, replicas = _most(service, resolved), _replicas(service)
    held = sum(not pod.failed for pod in service.stable_pods)
    if most is None or max(replicas, held) + 1 <= most:
        return ""
    needed = service.demand.wanted
    lack = f"the service may have no more than {count(most, 'replica')}"
    if resolved.max_surge > 0 or replicas < 2:
        return f"it waits for a GPU for the new engine: {lack}"
    if needed is None or needed > replicas - 1:
        return f"it waits for less load: {lack}, and the load needs all of them"
    return ""


def _replicas(service: Service) -> int:
    deployment = service.children.get(f"Deployment/{service.key[1]}")
    return 0 if deployment is None else int(deployment["spec"].get("replicas", 1))


def _most(service: Service, resolved: Resolved) -> int | None:
    """Replicas that may hold GPUs at a time; None where nothing limits them but the cluster."""
    limits = [resolved.max_replicas] if resolved.bounded_by_gpus else []
    if service.share is not None:
        limits.append(max(1, service.share.most))
    return min(limits, default=None)
