"""``outrider simulate``: a resource under several policies, on simulated engines in virtual time."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.exits import INTERRUPTED
from outrider.cli.output import Output, OutputOption, emit
from outrider.cli.simulate_inputs import DEFAULT_RATE_FACTOR, DEFAULT_TRACE, Options, experiments, known, refused
from outrider.simulator.trace_names import TRACES

if TYPE_CHECKING:
    from outrider.replay.experiment import Experiment
    from outrider.replay.runner import Progress

DEFAULT_POLICIES = ("no-drafter", "k1", "k5", "vllm-table", "outrider")
DEFAULT_JOBS = 2
HELP = """Replay a service's load in virtual time under several policies, and say where each loses.

Engines are simulated from step times measured on an H100; the resource is read, checked and steered by the operator's
own code. Without a MANIFEST it is the least resource that makes a service. The same options give the same result.

Several services, one MANIFEST each, share a --gpu-quota as under the operator. A value of --trace, --rate-factor,
--acceptance or --shift with a service's name before it, as in chat:4, holds for that service instead.

For example: outrider simulate --duration 20m --shift 10m:0.4 --policy all --html result.html"""


def simulate(
    manifest: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MANIFEST", help="File with one SpeculativeInferenceService; several of them with --gpu-quota."
        ),
    ] = None,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SERVICE:]TRACE",
            help=f"Trace by name, or a file in the form of one: {', '.join(TRACES)}. (default: {DEFAULT_TRACE})",
        ),
    ] = None,
    rate_factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SERVICE:]NUMBER",
            help=f"How many times denser than recorded requests arrive. (default: {DEFAULT_RATE_FACTOR})",
        ),
    ] = None,
    duration: Annotated[str, typer.Option(help="Virtual time, such as 90s, 15m or 1h.")] = "10m",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Who decides: no-drafter, k0 to k7 (a constant), vllm-table, acceptance-threshold, smartspec, ema,"
            f" oracle, outrider, or all; may be repeated. (default: {', '.join(DEFAULT_POLICIES)})",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.", min=0)] = 0,
    acceptance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SERVICE:][CLASS=]CURVE[@PERCENT]",
            help="How well drafts fit: a kind of text (chat, code, summarise), one probability for each draft token"
            " (0.8), or the shares by position (0.8,0.6,0.5). Repeat it with percents for several classes of requests."
            " (default: the measured curve)",
        ),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SERVICE:]TIME:[CLASS=]CURVE",
            help="From TIME on, requests have another acceptance; may be repeated.",
        ),
    ] = None,
    replicas: Annotated[int, typer.Option(help="Engines, all along.", min=1)] = 1,
    autoscale: Annotated[
        bool,
        typer.Option(
            "--autoscale",
            help="Let the resource's autoscaler set the number of engines instead; the next three options ask for it"
            " too.",
        ),
    ] = False,
    cold_start: Annotated[
        str | None,
        typer.Option(help="From an engine's creation to its readiness, such as 30s or 5m. (default: 60s)"),
    ] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Instead of the resource's maxReplicas.", min=1)] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs that there are for this service; engines beyond them do not start.", min=1)
    ] = None,
    gpu_quota: Annotated[
        int | None,
        typer.Option(
            help="GPUs that the services have together, by a ResourceQuota of their namespace; autoscalers set the"
            " replicas.",
            min=1,
        ),
    ] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE:NUMBER",
            help="With --gpu-quota: of a service's pods, as their PriorityClass has it; may be repeated. (default: 0)",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    html: Annotated[Path | None, typer.Option(help="Also write a page with plots to this file.")] = None,
    jobs: Annotated[int, typer.Option(help="Policies replayed at a time.", min=1)] = DEFAULT_JOBS,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    scaled = autoscale or any(one is not None for one in (cold_start, max_replicas, gpus, gpu_quota))
    options = Options(
        manifest or [], trace or [], rate_factor or [], duration, acceptance or [], shift or [], seed,
        None if scaled else replicas, cold_start, max_replicas, gpus,
    )  # fmt: skip
    _agree(options, gpu_quota, priority or [], policy or [])
    services = experiments(options)
    _writable(html)
    began_s = time.monotonic()
    try:
        if gpu_quota is not None:
            done = _shared(services, gpu_quota, priority or [])
        else:
            (experiment,) = services.values()
            done = _compared(experiment, _policies(experiment, policy or []), jobs)
    except KeyboardInterrupt:
        typer.echo("outrider: stopped before the end; nothing was written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if html is not None:
        html.write_text(done.page(_command()), encoding="utf-8")
    emit(done.document, output, done.show)
    typer.echo(f"replayed {done.what} in {time.monotonic() - began_s:.1f} s" + _written(html), err=True)


@dataclass(frozen=True, slots=True)
class _Done:
    """A result and its forms."""

    what: str
    """What was replayed, in two words."""
    document: dict[str, Any]
    show: Callable[[], None]
    page: Callable[[str], str]
    """By the command that made it."""


def _compared(experiment: Experiment, policies: Sequence[str], jobs: int) -> _Done:
    """One service under several policies."""
    # Here and not above: numpy, scipy and pydantic would slow every other command down.
    from outrider.replay import page, report, runner, table

    with _progress(policies, f"{len(policies)} policies", experiment.load.duration_s) as progress:
        done = runner.run_all(experiment, policies, min(jobs, os.cpu_count() or 1), progress)
    document = report.document(experiment, done)
    return _Done(
        f"{len(done)} policies", document, lambda: table.show(document), lambda command: page.render(document, command)
    )


def _shared(services: dict[str, Experiment], gpus: int, priority: Sequence[str]) -> _Done:
    """Several services under one quota."""
    from outrider.replay.quota import page, report, run, table
    from outrider.replay.quota.experiment import QuotaExperiment, check, under_quota

    experiment = QuotaExperiment(
        {name: under_quota(one) for name, one in services.items()}, gpus, _priorities(priority, list(services))
    )
    try:
        check(experiment)
    except ValueError as error:
        raise refused(str(error)) from error
    what = f"{len(services)} services" if len(services) > 1 else "1 service"
    with _progress([what], what, experiment.duration_s) as progress:
        done = run.run(experiment, lambda share: progress(what, share))
    document = report.document(experiment, done)
    return _Done(what, document, lambda: table.show(document), lambda command: page.render(document, command))


def _agree(options: Options, gpu_quota: int | None, priority: Sequence[str], policy: Sequence[str]) -> None:
    """Whether the options go together."""
    if gpu_quota is None:
        if len(options.manifests) > 1:
            raise refused(
                f"MANIFEST {options.manifests[1]}: several services are replayed under a quota that they share; give"
                " --gpu-quota, or one MANIFEST"
            )
        if priority:
            raise refused(f"--priority {priority[0]}: decides between services that share a quota; give --gpu-quota")
        return
    if options.gpus is not None:
        raise refused(f"--gpus {options.gpus}: is for a service alone; leave it out beside --gpu-quota")
    if any(one != "outrider" for one in policy):
        raise refused(
            f"--policy {policy[0]}: services that share a quota are steered by outrider; leave it out, or replay each"
            " alone with --gpus"
        )


def _priorities(texts: Sequence[str], services: Sequence[str]) -> dict[str, int]:
    """The priorities by service."""
    found = {}
    for text in texts:
        service, _, number = text.rpartition(":")
        if not re.fullmatch(r"-?\d{1,10}", number):
            raise refused(f"--priority {text}: write SERVICE:NUMBER, for example {services[0]}:1000")
        found[known("--priority", service, services)] = int(number)
    return found


def _policies(experiment: Experiment, wanted: Sequence[str]) -> list[str]:
    """The names to replay, in the order of the catalogue for ``all``, each once."""
    from outrider.replay.policies import available

    allowed = available(experiment.render())
    if not wanted:
        return [name for name in DEFAULT_POLICIES if name in allowed]
    if "all" in wanted:
        return list(allowed)
    unknown = [name for name in wanted if name not in allowed]
    if unknown:
        raise refused(f"--policy {unknown[0]}: this resource can have {', '.join(allowed)}, or all")
    return list(dict.fromkeys(wanted))


def _writable(html: Path | None) -> None:
    """A page that cannot be written is said before the work, not after it."""
    if html is None:
        return
    if html.is_dir() or not html.absolute().parent.is_dir():
        raise refused(f"--html {html}: is a folder, or lies in one that does not exist; make it, or choose another")
    if not os.access(html if html.exists() else html.absolute().parent, os.W_OK):
        raise refused(f"--html {html}: may not be written; choose another place")


@contextmanager
def _progress(names: Sequence[str], what: str, duration_s: float) -> Iterator[Progress]:
    """Bars on standard error, one a name, where it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _name, _share: None
        return
    columns = (TextColumn("{task.description:22}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        tasks = {name: bars.add_task(name, total=1.0) for name in names}
        console.print(f"{what} over {duration_s / 60:g} minutes of virtual time")
        yield lambda name, share: bars.update(tasks[name], completed=share)


def _command() -> str:
    import shlex

    return shlex.join(["outrider", *sys.argv[1:]])


def _written(html: Path | None) -> str:
    return "" if html is None else f"; wrote {html}"
