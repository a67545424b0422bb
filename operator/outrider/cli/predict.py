"""``outrider predict``: the latency law of a measured profile, over load and K."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.exits import FAILED
from outrider.cli.output import emit

if TYPE_CHECKING:
    from outrider.core.measured_profile import MeasuredProfile
    from outrider.core.outlook import Expected

SHIPPED = "h100-llama8b-eagle"
LOAD_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the highest saturation rate: the loads shown where none are given."""
HELP = """Predict mean latency over load for each K, from step times measured on one engine.

Shows where each number of draft tokens stops paying (break-even against an engine without a drafter), the highest load
of an engine (saturation), and how many engines a load needs within an objective for time per output token. Without a
PROFILE it is the one shipped with the package: Llama-3.1-8B dimensions with EAGLE on one H100.

For example: outrider predict --k 1,3,5 --prompt-tokens 1000 --output-tokens 300 --tpot-ms 12 --total-load 60"""


class Output(StrEnum):
    """Forms of the result on standard output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def predict(
    profile: Annotated[Path | None, typer.Argument(metavar="PROFILE", help="Profile document, JSON.")] = None,
    k: Annotated[
        str | None, typer.Option("--k", metavar="K,K,…", help="Draft tokens to compare. (default: all of the profile)")
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="RATE,RATE,…", help="Requests a second of one engine. (default: shares of saturation)"),
    ] = None,
    prompt_tokens: Annotated[float, typer.Option(help="Mean tokens of a prompt.", min=1)] = 500.0,
    output_tokens: Annotated[float, typer.Option(help="Mean tokens of an answer.", min=2)] = 200.0,
    tpot_ms: Annotated[
        float | None, typer.Option(help="Objective for the 95th percentile of time per output token.", min=0.001)
    ] = None,
    total_load: Annotated[
        float | None, typer.Option(help="Requests a second of the whole service: engines needed for it.", min=0.0)
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="Most requests an engine runs at once. (default: the largest measured)", min=2)
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")] = Output.TABLE,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw latency over load, as SVG.")] = None,
) -> None:
    """Run the command; `HELP` is what the command line says of it."""
    # Here and not above: numpy and scipy would slow every other command down.
    from outrider.cli import prediction
    from outrider.core.outlook import outlook

    if (tpot_ms is None) != (total_load is None):
        given, missing = ("--tpot-ms", "--total-load") if total_load is None else ("--total-load", "--tpot-ms")
        raise _refused(f"{given} needs {missing}: engines are counted for a load within an objective")
    measured = _profile(profile)
    values = _values(k, measured)
    batch = max_batch or int(measured.points.batch.max())
    arms = outlook(measured, values, prompt_tokens=prompt_tokens, output_tokens=output_tokens, max_batch=batch)
    document = prediction.document(
        arms,
        _loads(load, arms),
        largest_measured=float(measured.points.batch.max()),
        tpot_objective_s=None if tpot_ms is None else tpot_ms / 1e3,
        total_rps=total_load,
    )
    if plot is not None:
        _draw(document, plot)
    emit(document, output.value, lambda: prediction.show(document, wide=output is Output.WIDE))


def _profile(path: Path | None) -> MeasuredProfile:
    from outrider.core import measured_profile

    name = SHIPPED if path is None else str(path)
    try:
        text = (
            (files("outrider.simulator") / "data" / f"{SHIPPED}.json").read_text(encoding="utf-8")
            if path is None
            else path.read_text(encoding="utf-8")
        )
        profile = measured_profile.read(json.loads(text))
    except OSError as error:
        raise _refused(f"PROFILE {name}: {error.strerror}") from error
    except ValueError as error:
        raise _refused(f"PROFILE {name}: {error}") from error
    if len(profile.prefill_tokens) < 2 or not profile.acceptance:
        raise _refused(f"PROFILE {name}: needs acceptance, and prefill at two lengths or more")
    return profile


def _values(text: str | None, profile: MeasuredProfile) -> list[int]:
    known = sorted({int(value) for value in profile.points.num_speculative_tokens})
    if text is None:
        return known
    values = sorted({int(value) for value in _numbers("--k", text)})
    unknown = [value for value in values if value not in known]
    if unknown:
        raise _refused(f"--k: K {unknown[0]} is not in the profile, which has {', '.join(map(str, known))}")
    return values


def _loads(text: str | None, arms: list[Expected]) -> list[float]:
    if text is not None:
        return _numbers("--load", text)
    most = max(one.arm.saturation_rps for one in arms)
    return [float(f"{share * most:.2g}") for share in LOAD_SHARES]


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise _refused(f"{option}: {text!r} is no list of numbers such as 1,2,5") from None
    if any(not 0.0 <= number < 1e6 for number in numbers):
        raise _refused(f"{option}: numbers from 0 on are needed, not {text!r}")
    return numbers


def _draw(document: dict[str, Any], path: Path) -> None:
    from outrider.cli import prediction

    try:
        prediction.draw(document, path)
    except ImportError as error:
        typer.echo("outrider: --plot needs matplotlib: pip install matplotlib", err=True)
        raise typer.Exit(FAILED) from error
    except OSError as error:
        raise _refused(f"--plot {path}: {error.strerror}") from error


def _refused(message: str) -> typer.Exit:
    typer.echo(f"outrider: {message}", err=True)
    return typer.Exit(2)
