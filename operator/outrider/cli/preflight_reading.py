"""Resources and model configurations from files, folders and standard input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrider.api import KIND
from outrider.engine import model_facts
from outrider.engine.model_facts import ModelFacts

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
STDIN = "standard input"
SUFFIXES = (".yaml", ".yml", ".json")


class Unreadable(Exception):
    """Something that was named cannot be read, or is not what it should be; the message says what."""


@dataclass(frozen=True, slots=True)
class Document:
    """One resource and where it was found."""

    source: str
    """File and, where there are several in it, the number of the document, from 1."""
    body: dict[str, Any]


def documents(paths: Iterable[str]) -> list[Document]:
    """All resources of our kind in files, folders and standard input (``-``); other kinds are passed over.

    Raises:
        Unreadable: a file is missing or no YAML, or nothing of our kind was found.
    """
    named = list(paths)
    objects = [document for path in named for document in _documents(path)]
    found = [document for document in objects if document.body.get("kind") == KIND]
    if not found:
        others = sorted({str(document.body["kind"]) for document in objects if document.body.get("kind")})
        there_are = f", only {', '.join(others)}" if others else ""
        raise Unreadable(f"no {KIND} in {', '.join(STDIN if path == '-' else path for path in named)}{there_are}")
    return found


def _documents(path: str) -> Iterator[Document]:
    if path == "-":
        yield from _parsed(STDIN, sys.stdin.read())
        return
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = sorted(file for file in place.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    for file in files:
        yield from _parsed(str(file), _text(file))


def _parsed(source: str, text: str) -> Iterator[Document]:
    try:
        parsed = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except yaml.YAMLError as error:
        raise Unreadable(_no_yaml(source, text, error)) from error
    for number, document in enumerate(parsed, start=1):
        place = source if len(parsed) == 1 else f"{source}, document {number}"
        for body in _items(document):
            yield Document(place, body)


def _no_yaml(source: str, text: str, error: yaml.YAMLError) -> str:
    """Where YAML ends in a text and what to do about it, with the line and a mark under the place."""
    said = " ".join(str(error).split())
    template = "; it looks like a template: render it first, and give the result" if "{{" in text else ""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{source}: not valid YAML: {said}{template}"
    mark, problem = error.problem_mark, error.problem or said
    lines = text.splitlines()
    number = min(mark.line, max(0, len(lines) - 1))  # an end that comes too early is marked after the last line
    column = mark.column if number == mark.line else len(lines[number]) if lines else 0
    start = (error.context_mark or mark).line + 1
    why = next((why.format(start=start) for pattern, why in _WHY if re.search(pattern, problem)), problem)
    shown = lines[number].replace("\t", " ") if lines else ""
    place = f"{source}, line {number + 1}, column {column + 1}"
    return f"{place}: not valid YAML: {why}{template}\n  {shown}\n  {' ' * column}^"


_WHY = (
    (r"'\\t'", "a tab: indent with spaces alone"),
    (r"expected <block end>", "this does not belong to the block that begins in line {start}: look at its"
     " indentation, and at what stands before it in the line"),
    (r"mapping values are not allowed", "a colon where none can be: give the line the indentation of its neighbours,"
     " see that the line before has a colon with a blank after it, and put quotes around a value that holds a colon"),
    (r"expected ',' or", "the bracket or brace of line {start} is not closed, or a comma is missing"),
    (r"end of stream", "the quotes of line {start} are not closed"),
    (r"could not find expected ':'", "the key in line {start} has no colon with a blank after it"),
    (r"node content", "a value is missing, or the bracket or brace of line {start} is not closed"),
    (r"alphabetic or numeric", "a value that begins with * or & is a reference; put quotes around it"),
    (r"cannot start any token", "this character cannot begin a value: put quotes around the value"),
    (r"undefined alias", "a value that begins with * stands for an anchor, and there is none of this name; put quotes"
     " around it"),
)  # fmt: skip
"""What the parser says, in words of whoever wrote the file; the first that fits counts, and else its own words do."""


class _Loader(yaml.SafeLoader):
    """YAML without keys that are given twice, of which the last would be taken without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value} is given twice: remove one of them", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _items(document: Any) -> Iterator[dict[str, Any]]:
    """The object itself, or the objects of a list."""
    if not isinstance(document, dict):
        return
    if isinstance(document.get("items"), list):
        yield from (item for item in document["items"] if isinstance(item, dict))
    else:
        yield document


def model(path: Path) -> ModelFacts:
    """Facts of a model from its config.json, or from the folder that holds it and perhaps the weights.

    Raises:
        Unreadable: there is no such file, or it is no JSON object.
    """
    file = path / CONFIG if path.is_dir() else path
    document = _json(file)
    return model_facts.read(document, _weights_bytes(file.parent) if file.name == CONFIG else None)


def local_model(identifier: str) -> ModelFacts | None:
    """Facts of a model whose id is a folder of this machine; None for a repository of a hub."""
    folder = Path(identifier)
    return model(folder) if (folder / CONFIG).is_file() else None


def _weights_bytes(folder: Path) -> int | None:
    """Size of the weights beside a config.json: by the index of their parts, else by the files."""
    index = folder / INDEX
    if index.is_file():
        metadata = _json(index).get("metadata")
        size = metadata.get("total_size") if isinstance(metadata, dict) else None
        if isinstance(size, int):
            return size
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(_text(file))
    except ValueError as error:
        raise Unreadable(f"{file}: no JSON: {error}") from error
    if not isinstance(document, dict):
        raise Unreadable(f"{file}: no JSON object")
    return document


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{file}: no UTF-8 text") from error
