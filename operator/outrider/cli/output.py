"""Forms of a result on standard output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml


class Output(StrEnum):
    """Forms of the result on standard output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")]


def emit(document: Mapping[str, Any], output: str, show: Callable[[], None]) -> None:
    """Print a document as JSON or YAML, or call ``show``, which prints it for people."""
    if output == Output.JSON:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif output == Output.YAML:
        typer.echo(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120), nl=False)
    else:
        show()
