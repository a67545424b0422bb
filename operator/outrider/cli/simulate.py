"""``outrider simulate``: a resource under several policies, on simulated engines in virtual time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.exits import FAILED, INTERRUPTED
from outrider.cli.output import Output, OutputOption, emit
from outrider.simulator.trace_names import TRACES

if TYPE_CHECKING:
    from outrider.replay.experiment import Experiment
    from outrider.replay.runner import Progress

DEFAULT_POLICIES = ("no-drafter", "k1", "k5", "vllm-table", "outrider")
DEFAULT_JOBS = 2
HELP = """Replay a service's load in virtual time under several policies, and say where each loses.

Engines are simulated from step times measured on an H100; the resource is read, checked and steered by the operator's
own code. Without a MANIFEST it is the least resource that makes a service. The same options give the same result.

For example: outrider simulate --duration 20m --shift 10m:0.4 --policy all --html result.html"""


def simulate(
    manifest: Annotated[
        Path | None, typer.Argument(metavar="MANIFEST", help="File with one SpeculativeInferenceService.")
    ] = None,
    trace: Annotated[
        str, typer.Option(help=f"Trace by name, or a file in the form of one: {', '.join(TRACES)}.")
    ] = "azure-conversation",
    rate_factor: Annotated[float, typer.Option(help="How many times denser than recorded requests arrive.")] = 2.5,
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
            metavar="[CLASS=]CURVE[@PERCENT]",
            help="How well drafts fit: a kind of text (chat, code, summarise), one probability for each draft token"
            " (0.8), or the shares by position (0.8,0.6,0.5). Repeat it with percents for several classes of requests."
            " (default: the measured curve)",
        ),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME:[CLASS=]CURVE", help="From TIME on, requests have another acceptance; may be repeated."
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
    output: OutputOption = Output.TABLE,
    html: Annotated[Path | None, typer.Option(help="Also write a page with plots to this file.")] = None,
    jobs: Annotated[int, typer.Option(help="Policies replayed at a time.", min=1)] = DEFAULT_JOBS,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    # Here and not above: numpy, scipy and pydantic would slow every other command down.
    from outrider.errors import InvalidSpec
    from outrider.replay import page, report, runner, table

    try:
        scaled = autoscale or any(one is not None for one in (cold_start, max_replicas, gpus))
        experiment = _experiment(
            manifest, trace, rate_factor, duration, acceptance or [], shift or [], seed, None if scaled else replicas
        )
        experiment = _surroundings(experiment, cold_start, max_replicas, gpus)
        policies = _policies(experiment, policy or [])
        _writable(html)
    except InvalidSpec as error:
        raise _refused(f"{manifest}: {error.reason}: {error.message}") from error
    began_s = time.monotonic()
    try:
        with _progress(policies, experiment.load.duration_s) as progress:
            done = runner.run_all(experiment, policies, min(jobs, os.cpu_count() or 1), progress)
    except KeyboardInterrupt:
        typer.echo("outrider: stopped before the end; nothing was written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    document = report.document(experiment, done)
    if html is not None:
        html.write_text(page.render(document, _command()), encoding="utf-8")
    emit(document, output, lambda: table.show(document))
    typer.echo(f"replayed {len(done)} policies in {time.monotonic() - began_s:.1f} s" + _written(html), err=True)


def _experiment(
    manifest: Path | None,
    trace: str,
    rate_factor: float,
    duration: str,
    acceptance: list[str],
    shifts: Sequence[str],
    seed: int,
    replicas: int | None,
) -> Experiment:
    """Everything but the policies; a bad value ends the command with its option's name."""
    from outrider.replay import notation
    from outrider.replay.experiment import DEFAULT_ACCEPTANCE, Experiment
    from outrider.replay.load import Load

    document = _document(manifest)
    if not 0 < rate_factor < float("inf"):
        raise _refused(f"--rate-factor {rate_factor:g}: must be above 0; 1 is the rate that was recorded")
    with _option("--duration"):
        duration_s = notation.duration_s(duration)
        if duration_s < SHORTEST_S:
            raise ValueError(f"{duration!r} is too short to decide anything; give at least {SHORTEST_S:.0f}s")
    with _option("--acceptance"):
        classes = notation.acceptance_classes(acceptance) if acceptance else DEFAULT_ACCEPTANCE
    with _option("--shift"):
        moved = tuple(sorted((notation.shift(one, classes) for one in shifts), key=lambda one: one.at_s))
        if moved and moved[-1].at_s >= duration_s:
            raise ValueError(f"{moved[-1].at_s:g} s is after the end; shift earlier, or give a longer --duration")
    load = Load(trace, rate_factor, duration_s, classes, moved, seed)
    with _option("--trace"):
        _ = load.recorded  # read here, so that a fault is told as this option's
    experiment = Experiment(document, load, replicas)
    if experiment.render().settings.speculation is None:
        raise _refused(
            f"MANIFEST {manifest}: its engines run without a drafter (spec.speculation.tuning.mode Off), which leaves"
            " nothing to compare; set the mode to Adaptive"
        )
    return experiment


def _surroundings(
    experiment: Experiment, cold_start: str | None, max_replicas: int | None, gpus: int | None
) -> Experiment:
    """The same with bounds and a cold start of the command line."""
    from dataclasses import replace

    from outrider.replay import notation

    if cold_start is not None:
        with _option("--cold-start"):
            experiment = replace(experiment, cold_start_s=notation.duration_s(cold_start))
    experiment = replace(experiment, max_replicas=max_replicas, gpus=gpus)
    if experiment.replicas is None:
        try:
            experiment.bounds(experiment.render())
        except ValueError as error:
            raise _refused(str(error)) from error
    return experiment


SHORTEST_S = 60.0
"""Four control periods."""


def _document(manifest: Path | None) -> dict[str, Any]:
    """The resource as it stands in its file."""
    import yaml

    from outrider.replay.virtual import SAMPLE, read_manifest

    try:
        document = read_manifest(manifest or SAMPLE)
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"MANIFEST {manifest}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise _refused(f"MANIFEST {manifest}: not one YAML document: {error}") from error
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != "SpeculativeInferenceService":
        raise _refused(f"MANIFEST {manifest}: holds {kind or 'no object'}; give a SpeculativeInferenceService")
    if not isinstance(document.get("metadata"), dict) or "name" not in document["metadata"]:
        raise _refused(f"MANIFEST {manifest}: has no metadata.name; the operator would never see such a resource")
    return document


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
        raise _refused(f"--policy {unknown[0]}: this resource can have {', '.join(allowed)}, or all")
    return list(dict.fromkeys(wanted))


def _writable(html: Path | None) -> None:
    """A page that cannot be written is said before the work, not after it."""
    if html is None:
        return
    if html.is_dir() or not html.absolute().parent.is_dir():
        raise _refused(f"--html {html}: is a folder, or lies in one that does not exist; make it, or choose another")
    if not os.access(html if html.exists() else html.absolute().parent, os.W_OK):
        raise _refused(f"--html {html}: may not be written; choose another place")


@contextmanager
def _progress(policies: Sequence[str], duration_s: float) -> Iterator[Progress]:
    """Bars on standard error, one a policy, where it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _name, _share: None
        return
    columns = (TextColumn("{task.description:22}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        tasks = {name: bars.add_task(name, total=1.0) for name in policies}
        console.print(f"{len(policies)} policies over {duration_s / 60:g} minutes of virtual time")
        yield lambda name, share: bars.update(tasks[name], completed=share)


@contextmanager
def _option(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise _refused(f"{name}: {error}") from error


def _refused(sentence: str) -> typer.Exit:
    """Say on standard error what is wrong; what is returned ends the command."""
    typer.echo(f"outrider: {sentence}", err=True)
    return typer.Exit(FAILED)


def _command() -> str:
    import shlex

    return shlex.join(["outrider", *sys.argv[1:]])


def _written(html: Path | None) -> str:
    return "" if html is None else f"; wrote {html}"
