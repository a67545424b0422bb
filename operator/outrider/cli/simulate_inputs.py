"""What the options of ``outrider simulate`` ask for: services, each with its load; a bad value ends the command with
its option's name.

The options of a load hold for all services; with a service's name and a colon before it, a value holds for that one
alone, instead of those for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from outrider.cli.exits import FAILED

if TYPE_CHECKING:
    from outrider.replay.experiment import Experiment
    from outrider.replay.load import Load

DEFAULT_TRACE = "azure-conversation"
DEFAULT_RATE_FACTOR = "2.5"
SHORTEST_S = 60.0
"""Four control periods."""
SEEDS_APART = 1000
"""Between the seeds of two services: each lap of a trace takes the next seed."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as far as it is about services and loads."""

    manifests: Sequence[Path]
    """None of them: the least resource that makes a service."""
    trace: Sequence[str]
    rate_factor: Sequence[str]
    duration: str
    acceptance: Sequence[str]
    shift: Sequence[str]
    seed: int
    replicas: int | None
    """None: the resource's autoscaler sets them."""
    cold_start: str | None = None
    max_replicas: int | None = None
    gpus: int | None = None


def experiments(options: Options) -> dict[str, Experiment]:
    """All services by name, in the order of their manifests."""
    from outrider.errors import InvalidSpec

    documents = _documents(options.manifests)
    names = list(documents)
    loads = [_of_each("--trace", options.trace, names), _of_each("--rate-factor", options.rate_factor, names)]
    fits = [_of_each("--acceptance", options.acceptance, names), _of_each("--shift", options.shift, names, colons=1)]
    found = {}
    for number, (name, (path, document)) in enumerate(documents.items()):
        chosen = [one[name] for one in (*loads, *fits)]
        load = _load(options, chosen, options.seed + SEEDS_APART * number)
        try:
            found[name] = _experiment(options, path, document, load)
        except InvalidSpec as error:
            raise refused(f"{path}: {error.reason}: {error.message}") from error
    return found


def _experiment(options: Options, path: Path | None, document: Mapping[str, Any], load: Load) -> Experiment:
    """One service; raises `outrider.errors.InvalidSpec`."""
    from outrider.replay import notation
    from outrider.replay.experiment import COLD_START_S, Experiment

    with option("--cold-start"):
        cold_start_s = COLD_START_S if options.cold_start is None else notation.duration_s(options.cold_start)
    experiment = Experiment(document, load, options.replicas, cold_start_s, options.max_replicas, options.gpus)
    rendered = experiment.render()
    if rendered.settings.speculation is None:
        raise refused(
            f"MANIFEST {path}: its engines run without a drafter (spec.speculation.tuning.mode Off), which leaves"
            " nothing to compare; set the mode to Adaptive"
        )
    if experiment.replicas is None:
        try:
            experiment.bounds(rendered)
        except ValueError as error:
            raise refused(str(error)) from error
    return experiment


def _load(options: Options, chosen: Sequence[Sequence[str]], seed: int) -> Load:
    """The load by what was chosen for one service: traces, rate factors, acceptance, shifts."""
    from outrider.replay import notation
    from outrider.replay.experiment import DEFAULT_ACCEPTANCE
    from outrider.replay.load import Load

    traces, factors, acceptance, shifts = chosen
    rate_factor = _factor((factors or [DEFAULT_RATE_FACTOR])[-1])
    with option("--duration"):
        duration_s = notation.duration_s(options.duration)
        if duration_s < SHORTEST_S:
            raise ValueError(f"{options.duration!r} is too short to decide anything; give at least {SHORTEST_S:.0f}s")
    with option("--acceptance"):
        classes = notation.acceptance_classes(list(acceptance)) if acceptance else DEFAULT_ACCEPTANCE
    with option("--shift"):
        moved = tuple(sorted((notation.shift(one, classes) for one in shifts), key=lambda one: one.at_s))
        if moved and moved[-1].at_s >= duration_s:
            raise ValueError(f"{moved[-1].at_s:g} s is after the end; shift earlier, or give a longer --duration")
    load = Load((traces or [DEFAULT_TRACE])[-1], rate_factor, duration_s, classes, moved, seed)
    with option("--trace"):
        _ = load.recorded  # read here, so that a fault is told as this option's
    return load


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = nan
    if not 0 < factor < inf:
        raise refused(f"--rate-factor {text}: must be a number above 0; 1 is the rate that was recorded")
    return factor


def _of_each(name: str, texts: Sequence[str], services: Sequence[str], colons: int = 0) -> dict[str, list[str]]:
    """By service, the values of an option that hold for it; a value of its own may have so many ``colons``."""
    common: list[str] = []
    own: dict[str, list[str]] = {service: [] for service in services}
    for text in texts:
        if text.count(":") <= colons or (name == "--trace" and Path(text).exists()):
            common.append(text)
            continue
        service, _, value = text.partition(":")
        own[known(name, service, services)].append(value)
    return {service: values or common for service, values in own.items()}


def known(name: str, service: str, services: Sequence[str]) -> str:
    """The name of a service, or the end of the command where no manifest has it."""
    if service not in services:
        raise refused(f"{name}: no MANIFEST is of a service {service!r}; there are {', '.join(services)}")
    return service


def _documents(manifests: Sequence[Path]) -> dict[str, tuple[Path | None, dict[str, Any]]]:
    """The resources by name, with their files."""
    found: dict[str, tuple[Path | None, dict[str, Any]]] = {}
    for path in manifests or (None,):
        document = _document(path)
        name = str(document["metadata"]["name"])
        if name in found:
            raise refused(
                f"MANIFEST {path}: is of {name}, as is {found[name][0]}; give each service once, or another"
                " metadata.name"
            )
        found[name] = (path, document)
    return found


def _document(manifest: Path | None) -> dict[str, Any]:
    """The resource as it stands in its file."""
    import yaml

    from outrider.replay.virtual import SAMPLE, read_manifest

    try:
        document = read_manifest(manifest or SAMPLE)
    except (OSError, UnicodeDecodeError) as error:
        raise refused(f"MANIFEST {manifest}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise refused(f"MANIFEST {manifest}: not one YAML document: {error}") from error
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != "SpeculativeInferenceService":
        raise refused(f"MANIFEST {manifest}: holds {kind or 'no object'}; give a SpeculativeInferenceService")
    if not isinstance(document.get("metadata"), dict) or "name" not in document["metadata"]:
        raise refused(f"MANIFEST {manifest}: has no metadata.name; the operator would never see such a resource")
    return document


@contextmanager
def option(name: str) -> Iterator[None]:
    """What is wrong in here is told as this option's."""
    try:
        yield
    except ValueError as error:
        raise refused(f"{name}: {error}") from error


def refused(sentence: str) -> typer.Exit:
    """Say on standard error what is wrong; what is returned ends the command."""
    typer.echo(f"outrider: {sentence}", err=True)
    return typer.Exit(FAILED)
