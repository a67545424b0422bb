"""``outrider preflight``: what can be known of a service before it runs."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.exits import FAILED, NO
from outrider.cli.output import Output, OutputOption, emit

if TYPE_CHECKING:
    from outrider.cli.preflight_examination import Knowledge
    from outrider.cli.preflight_reading import Document
    from outrider.cli.preflight_report import Report

HELP = """Check SpeculativeInferenceServices before they are deployed: form, admission, and what experience warns of.

FILE is a file, a folder, or - for standard input; objects of other kinds are passed over. Without options only files
are read. The sentences of form and admission are those that the operator would put into a condition.

Exit status: 0 when nothing is refused, 1 when something is, 2 when the command itself cannot be carried out.

For example: outrider preflight chat.yaml --model-config config.json --gpu-memory 80Gi --workload chat"""


class WorkloadName(StrEnum):
    """Kinds of text, by what they mean for speculation."""

    CHAT = "chat"
    CODE = "code"
    MATH = "math"
    CREATIVE = "creative"
    SUMMARISE = "summarise"
    RAG = "rag"
    TRANSLATE = "translate"
    AGENT = "agent"


def preflight(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files, folders, or - for standard input.")],
    model_config: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The model's config.json, or the folder of it and perhaps the weights. (default: read when model.id is"
            " a folder of this machine)",
        ),
    ] = None,
    draft_config: Annotated[Path | None, typer.Option(metavar="PATH", help="The same of the drafter.")] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of one GPU, such as 80Gi. (default: by the node selector's product)"),
    ] = None,
    workload: Annotated[WorkloadName | None, typer.Option(help="What the service is asked for.")] = None,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Also ask the cluster of the kubeconfig: dry run, secrets, claims, kinds, GPUs."
        ),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Name every rule, also those that are met.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    # Here and not above: pydantic and the manifests would slow every other command down.
    from outrider.cli import preflight_report
    from outrider.cli.preflight_reading import Unreadable, documents

    try:
        found = documents(files)
        reports = _reports(found, _knowledge(found, model_config, draft_config, gpu_memory, workload), cluster)
    except Unreadable as error:
        typer.echo(f"outrider: {error}", err=True)
        raise typer.Exit(FAILED) from error
    emit(preflight_report.document(reports), output, lambda: preflight_report.show(reports, everything=everything))
    if any(report.verdict == "refused" for report in reports):
        raise typer.Exit(NO)


def _knowledge(
    found: list[Document],
    model_config: Path | None,
    draft_config: Path | None,
    gpu_memory: str | None,
    workload: WorkloadName | None,
) -> Knowledge:
    from outrider.api.fields import quantity_value
    from outrider.cli.preflight_examination import Knowledge
    from outrider.cli.preflight_reading import Unreadable, model

    if (model_config or draft_config) and len(found) > 1:
        raise Unreadable(
            f"--model-config and --draft-config describe one pair, and there are {len(found)} resources: give one"
        )
    if gpu_memory is not None and not re.fullmatch(r"[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)", gpu_memory):
        raise Unreadable(f"--gpu-memory: {gpu_memory!r} is no amount of memory such as 80Gi")
    return Knowledge(
        target=None if model_config is None else model(model_config),
        drafter=None if draft_config is None else model(draft_config),
        gpu_memory_bytes=None if gpu_memory is None else quantity_value(gpu_memory),
        workload=None if workload is None else workload.value,
    )


def _reports(found: list[Document], knowledge: Knowledge, cluster: bool) -> list[Report]:
    from outrider.cli.preflight_examination import examined
    from outrider.cli.preflight_report import Report

    subjects = [(document, *examined(document, knowledge)) for document in found]
    if cluster:
        from outrider.cli import preflight_cluster

        asked = preflight_cluster.ask([(document, subject) for document, _, subject in subjects])
        subjects = [
            (document, [*outcomes, *(("cluster", one) for one in more)], subject)
            for (document, outcomes, subject), more in zip(subjects, asked, strict=True)
        ]
    return [
        Report(
            source=document.source,
            namespace=_text(document, "namespace", "default"),
            name=_text(document, "name", "?"),
            outcomes=tuple(outcomes),
        )
        for document, outcomes, _ in subjects
    ]


def _text(document: Document, name: str, without: str) -> str:
    metadata = document.body.get("metadata")
    return str(metadata.get(name) or without) if isinstance(metadata, dict) else without
