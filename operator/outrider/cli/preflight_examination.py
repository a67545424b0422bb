"""Everything that can be said of one resource without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outrider.api.defaults import resolve
from outrider.api.fields import quantity_value
from outrider.api.resource import parse
from outrider.cli import preflight_model, preflight_operations, preflight_schema, preflight_surroundings
from outrider.cli.preflight_outcome import (
    Outcome,
    PreflightCheck,
    Subject,
    Verdict,
    Workload,
    made,
    not_checked,
    of_admission,
    ok,
)
from outrider.cli.preflight_reading import Document, local_model
from outrider.cli.preflight_report import Group
from outrider.engine import gpus
from outrider.engine.admission import CHECKS, examine
from outrider.engine.model_facts import ModelFacts, PairFacts
from outrider.errors import InvalidSpec
from outrider.manifests import deployment, engine_container, engine_settings, network_policy, service
from outrider.manifests.meta import Manifest

DEPLOYMENT_CHECKS: tuple[PreflightCheck, ...] = (
    *preflight_model.CHECKS,
    *preflight_operations.CHECKS,
    *preflight_surroundings.CHECKS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the caller knows beside the resource."""

    target: ModelFacts | None = None
    drafter: ModelFacts | None = None
    gpu_memory_bytes: float | None = None
    workload: Workload | None = None


def examined(document: Document, knowledge: Knowledge) -> tuple[list[tuple[Group, Outcome]], Subject | None]:
    """What is said of a resource, and the subject for further checks; None when its form is wrong."""
    faults = preflight_schema.faults(document.body)
    outcomes: list[tuple[Group, Outcome]] = [("form", _form(faults))]
    if faults:
        return outcomes, None
    subject = _subject(document, knowledge)
    outcomes += [("admission", of_admission(check, subject)) for check in CHECKS]
    outcomes.append(("admission", _rendering(subject)))
    outcomes += [("deployment", made(check, subject)) for check in DEPLOYMENT_CHECKS]
    return outcomes, subject


def _form(faults: list[Verdict]) -> Outcome:
    return Outcome(
        name="form",
        verdicts=tuple(faults) or (ok("every field is known, and every value within its bounds"),),
        why="The API server refuses a field that it does not know, or a value out of bounds.",
        remedy="Correct the field that is named.",
        source="crds/serving.outrider.dev_speculativeinferenceservices.yaml",
    )


def _subject(document: Document, knowledge: Knowledge) -> Subject:
    resource = parse(document.body)
    resolved = resolve(resource.spec)
    selector = resource.spec.placement.node_selector
    gpu = gpus.product(selector.get(gpus.PRODUCT_LABEL, ""))
    draft = resource.spec.speculation.draft
    facts = PairFacts(
        target=knowledge.target or local_model(resource.spec.model.id),
        drafter=None if draft is None else knowledge.drafter or local_model(draft.id),
    )
    config = engine_settings.engine_config(resource, resolved)
    drafter = config.drafter
    config = replace(
        config,
        # By its id a model's size may be told; a rendered one may be a path inside the container.
        model=resource.spec.model.id,
        drafter=replace(drafter, model=draft.id) if drafter is not None and draft is not None else drafter,
        gpu_memory_bytes=_gpu_memory(knowledge, selector.get(gpus.MEMORY_LABEL), gpu),
    )
    return Subject(
        resource=resource,
        resolved=resolved,
        config=config,
        facts=facts,
        findings=tuple(examine(config, facts)),
        gpu=gpu,
        workload=knowledge.workload,
    )


def _gpu_memory(knowledge: Knowledge, mebibytes: str | None, gpu: gpus.Gpu | None) -> float | None:
    """Of one GPU: as the caller says, as the label of the nodes says, or as the product has it."""
    if knowledge.gpu_memory_bytes is not None:
        return knowledge.gpu_memory_bytes
    if mebibytes is not None and mebibytes.isdigit():
        return quantity_value(f"{mebibytes}Mi")
    return None if gpu is None else gpu.memory_bytes


def _rendering(subject: Subject) -> Outcome:
    return Outcome(
        name="Rendering",
        verdicts=tuple(_rendered(subject)),
        why="What the operator would create must be put together before the API server can judge it.",
        remedy="Correct the field that is named.",
        source="docs/design.md",
    )


def _rendered(subject: Subject) -> Iterator[Verdict]:
    if any(finding.severity == "error" for finding in subject.findings):
        yield not_checked("admission refuses the resource")
        return
    try:
        judged_by_kubernetes(subject)
    except InvalidSpec as error:
        yield Verdict("refused", error.message, "", error.reason)
    else:
        yield ok("the Deployment can be put together")


def judged_by_kubernetes(subject: Subject) -> list[Manifest]:
    """The children that the operator would apply with what is passed on as it is.

    Raises:
        InvalidSpec: the Deployment cannot be put together.
    """
    resource, resolved = subject.resource, subject.resolved
    config = engine_settings.engine_config(resource, resolved)
    engine = engine_container.build(resource, resolved, config)
    children = [deployment.deployment(resource, resolved, engine), service.service(resource, resolved)]
    return [*children, *([network_policy.network_policy(resource, None)] if resolved.network_policy else [])]
