"""``outrider explain``: why a service has this K and this many replicas."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from outrider.cli.connection import (
    ContextOption,
    KubeconfigOption,
    Manifest,
    NameArgument,
    NamespaceOption,
    PrometheusOption,
    Reach,
    connected,
    services,
)
from outrider.cli.exits import told
from outrider.cli.output import Output, OutputOption, emit
from outrider.errors import KubeError

if TYPE_CHECKING:
    from outrider.cli.explaining import Evidence, Section

VERSION = 1
HELP = """Explain one service: why this K, why this many replicas, what would change them.

Reads the resource's status, what the operator remembers of it, its HPA and, where one answers, the metrics store. What
cannot be looked at is said at the end, and the rest is explained all the same.

Exit status: 0 when it was explained, 2 when the command cannot be carried out, 3 when there is no such service.

For example: outrider explain chat -n ml"""


def explain(
    name: NameArgument,
    namespace: NamespaceOption = None,
    output: OutputOption = Output.TABLE,
    prometheus: PrometheusOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    # Here and not above: pydantic, numpy and scipy would slow every other command down.
    from outrider.cli import explaining

    with told():
        evidence = asyncio.run(_look(Reach(namespace, False, context, kubeconfig, prometheus), name))
    sections = explaining.explain(evidence)
    emit(document(evidence, sections), output, lambda: show(evidence, sections))


async def _look(reach: Reach, name: str) -> Evidence:
    from outrider.cli import questions
    from outrider.cli.beliefs import recall
    from outrider.cli.explaining import Evidence
    from outrider.cli.measured import measure
    from outrider.cli.seen import see

    async with connected(reach) as (kube, of_context):
        (body,) = await services(kube, reach, of_context, name)
        seen = see(body)
        beliefs, measured, (hpa, fault) = await asyncio.gather(
            recall(kube, body),
            measure(kube, reach, [body], questions.selector(seen.namespace, seen.name)),
            _hpa(kube, body),
        )
    gaps = [one for one in (beliefs if isinstance(beliefs, str) else "", measured.fault, fault) if one]
    return Evidence(
        seen=seen,
        now_s=time.time(),
        beliefs=None if isinstance(beliefs, str) else beliefs,
        now=measured.of((seen.namespace, seen.name)),
        hpa=hpa,
        gaps=gaps,
    )


async def _hpa(kube: Any, body: Manifest) -> tuple[Manifest | None, str]:
    """The HPA that KEDA made, if there is one, or why it cannot be seen."""
    metadata = body["metadata"]
    name = f"keda-hpa-{metadata['name']}"
    try:
        return await kube.get("autoscaling/v2", "HorizontalPodAutoscaler", metadata["namespace"], name), ""
    except KubeError as error:
        return None, f"the HPA cannot be read: {error.message}"


def document(evidence: Evidence, sections: list[Section]) -> dict[str, Any]:
    """The stable form: ``sections`` hold what is also printed, ``revisions`` and ``history`` have the form of status,
    ``expected`` is the prediction of each K."""
    return {
        "version": VERSION,
        "namespace": evidence.seen.namespace,
        "name": evidence.seen.name,
        "ready": evidence.seen.ready,
        "batch": evidence.batch,
        "sections": [{"title": one.title, "sentences": list(one.sentences)} for one in sections],
        "revisions": evidence.seen.revisions_document,
        "expected": [asdict(row) for one in sections for row in one.expected],
        "history": [change.model_dump(mode="json", by_alias=True) for change in evidence.seen.history],
    }


def show(evidence: Evidence, sections: list[Section]) -> None:
    """Print sentences under their headings."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(evidence.seen.title, style="bold"))
    for section in sections:
        console.print(Text(f"\n{section.title}", style="bold"))
        for sentence in section.sentences:
            if console.is_terminal:
                console.print(Padding(Text(sentence), (0, 0, 0, 2)))
            else:  # where another program reads, a sentence is a line
                console.print(Text(f"  {sentence}"), soft_wrap=True)
        if section.expected:
            console.print(Padding(_table(evidence, section), (0, 0, 0, 4)))


def _table(evidence: Evidence, section: Section) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("K", "tokens a step", "ms a token", "tokens/s a replica", ""):
        table.add_column(title, justify="left" if not title else "right")
    present = evidence.seen.tuning.speculative_tokens
    batch = evidence.batch or 1
    for row in section.expected:
        notes = ["at present"] if row.num_speculative_tokens == present else []
        notes += [] if row.measured else ["predicted, not measured"]
        table.add_row(
            str(row.num_speculative_tokens),
            f"{row.tokens_per_step:.2f}",
            f"{1e3 * row.tpot_s:.2f}",
            f"{batch / row.tpot_s:,.0f}",
            ", ".join(notes),
        )
    return table
