"""An argument vector, taken apart as vLLM 0.33's parser takes it.

Abbreviated flags, underscores, short forms and dotted JSON keys work as there; ``--config FILE`` does not, and says so.
Types alone are checked here: what the values mean is `command_line`'s part.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from outrider.simulator import known_flags
from outrider.simulator.documents import parse_compilation
from outrider.simulator.exits import EngineExit, refuse

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"  # vLLM's own, when nobody names one
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")
_OPPOSITE = {"--enable-": "--disable-", "--disable-": "--enable-"}


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """The value of every flag, with vLLM's defaults.

    Raises:
        EngineExit: with status 2, as for every mistake that a parser finds.
    """
    options = _parser().parse_args(_prepared(arguments))
    if options.config is not None:
        raise EngineExit(2, "the simulated engine reads no --config file; give the flags themselves")
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise EngineExit(2, f"{self.prog}: error: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="vllm serve", add_help=False)
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--speculative-config", "-sc", type=_optional_json)
    parser.add_argument("--spec-method")
    parser.add_argument("--spec-model")
    parser.add_argument("--spec-tokens", type=int)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=_human, default=8192)
    parser.add_argument("--max-model-len", type=_human_or_auto)
    parser.add_argument("--cudagraph-capture-sizes", nargs="+", type=int)
    parser.add_argument("--max-cudagraph-capture-size", type=int)
    parser.add_argument("--compilation-config", "-cc", type=parse_compilation, default="{}")
    parser.add_argument("-O", "--optimization-level", dest="optimization")
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--enable-lora", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--disable-lora", action="store_false", dest="enable_lora")
    parser.add_argument("--api-server-count", "-asc", type=int, default=1)
    parser.add_argument("--shutdown-timeout", type=int, default=0)
    parser.add_argument("--custom-histogram-buckets", type=_json)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--kv-cache-memory-bytes", type=_human)
    parser.add_argument("--num-gpu-blocks-override", type=int)
    parser.add_argument("--gpu-memory-utilization", "--device-memory-utilization", type=float, default=0.92)
    parser.add_argument("--attention-backend", default="FLASH_ATTN")
    parser.add_argument("--api-key", nargs="*", default=[])
    parser.add_argument("--config")
    _add_known(parser)
    return parser


def _add_known(parser: argparse.ArgumentParser) -> None:
    """Flags without an effect here; their values are not looked at."""

    def names(flag: str) -> list[str]:
        return [flag, known_flags.SHORT[flag]] if flag in known_flags.SHORT else [flag]

    for flag in known_flags.VALUES.split():
        parser.add_argument(*names(flag))
    for flag in known_flags.LISTS.split():
        parser.add_argument(flag, nargs="*")
    for flag in known_flags.SWITCHES.split():
        parser.add_argument(*names(flag), action=argparse.BooleanOptionalAction)
        for prefix, opposite in _OPPOSITE.items():
            if flag.startswith(prefix):
                parser.add_argument(opposite + flag.removeprefix(prefix), action="store_true")
    for flag in known_flags.ONE_WAY.split():
        parser.add_argument(*names(flag), action="store_true")


def _prepared(arguments: Sequence[str]) -> list[str]:
    """Without the program's own words, with hyphens in flags, and with dotted keys folded into one JSON argument each.

    Dotted keys of one spelling become one document at the end of the line. So they replace a document that was given
    whole or in another spelling, wherever that stood: argparse takes the last.
    """
    words = list(arguments)
    for end in ("serve", "vllm.entrypoints.openai.api_server"):
        if end in words[:4]:
            words = words[words.index(end) + 1 :]
    prepared: list[str] = []
    folded: dict[str, dict[str, Any]] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-"):
            prepared.append(word)
            continue
        flag, equals, value = word.partition("=")
        name, dot, key = flag.partition(".")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if not dot:
            prepared.append(f"{name}{equals}{value}")
            continue
        if not equals:
            if position == len(words):
                raise refuse(f"{flag}: list index out of range, a value must follow")
            value, position = words[position], position + 1
        _fold(folded.setdefault(name, {}), key, value)
    return prepared + [part for name, document in folded.items() for part in (name, json.dumps(document))]


def _fold(document: dict[str, Any], path: str, text: str) -> None:
    """Put one dotted key into a document: objects are merged, lists lengthened, anything else replaced."""
    if path.endswith("+"):
        path, text = path[:-1], json.dumps(text.split(","))
    value = _dotted_value(text)
    *outer, last = path.split(".")
    for key in outer:
        inner = document.get(key)
        if not isinstance(inner, dict):
            inner = document[key] = {}
        document = inner
    present = document.get(last)
    if isinstance(value, list) and isinstance(present, list):
        document[last] = present + value
    elif isinstance(value, dict) and isinstance(present, dict):
        document[last] = present | value
    else:
        document[last] = value


def _dotted_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        try:
            return _human(text)
        except (ValueError, argparse.ArgumentTypeError):
            return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to JSON") from error


def _optional_json(text: str) -> Any:
    return None if text in ("", "None") else _json(text)


def _human(text: str) -> int:
    """``4096``, ``4k`` (4,000) or ``4K`` (4,096)."""
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        try:
            return int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from error
    number, suffix = match.groups()
    if suffix.isupper() and "." in number:
        raise argparse.ArgumentTypeError(f"Decimals are not allowed with binary suffixes like {suffix}: {text!r}")
    return int(float(number) * _SUFFIXES[suffix])


def _human_or_auto(text: str) -> int:
    """The same, and -1 for ``auto``."""
    return -1 if text.strip().lower() == "auto" else _human(text)
