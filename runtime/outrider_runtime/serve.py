"""Start vLLM so that K can change while it serves: ``python -m outrider_runtime.serve MODEL --speculative-config …``

Takes the arguments of ``vllm serve``. Adds what live K needs and was not said: the plugin's name in ``VLLM_PLUGINS``,
runner V2, one API server, a start table that names every K, and CUDA-graph sizes that target and drafter share. Refuses
what would open the server to strangers. Then becomes vLLM.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from outrider.core import graphs
from outrider.core.schedule import InvalidSchedule, parse_rows
from outrider_runtime.settings import INITIAL_SCHEDULE, Settings

ALLOW_UNSAFE = "OUTRIDER_ALLOW_UNSAFE"
"""Variable for the brave: with 1, unsafe settings are named and taken."""
STATIC_METHODS = ("suffix", "custom_class", "ngram_gpu", "extract_hidden_states")
"""vLLM 0.33 drafts the ceiling in every step with these, whatever a table says."""
DEFAULT_MAX_NUM_SEQS = 256
"""What vLLM takes for a server on most cards; larger batches keep the K of the last row."""

_UNSAFE_FLAGS = {
    "--trust-remote-code": "runs code of the model's repository",
    "--allowed-local-media-path": "lets requests read files of the container",
    "--config": "brings flags that nobody checks here; write them out",
    "--grpc": "has no HTTP server, and so no admin port",
}
_UNSAFE_VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "opens endpoints that run anything in the workers",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "unpickles what arrives on a socket",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets every client load weights",
    "VLLM_USE_RUST_FRONTEND": "loads no plugin, and so has no admin port",
}
_SIZES = ("--cudagraph-capture-sizes", "--max-cudagraph-capture-size", "--compilation-config", "-cc", "--enforce-eager")
_CONFIG = ("--speculative-config", "-sc")
SHORTEST_ABBREVIATION = 5
"""Characters of ``--tru``: vLLM's parser takes beginnings of flags for the flags."""

Fault = tuple[str, str]
"""A setting that is refused, and what it does."""

_DEFAULT = Settings()
USAGE = f"""usage: python -m outrider_runtime.serve MODEL [arguments of vllm serve]

{(__doc__ or "").split(chr(10) * 2, 1)[1].strip()}

variables:
  OUTRIDER_ADMIN_PORT             port of PUT and GET /schedule and GET /ready ({_DEFAULT.port})
  OUTRIDER_ADMIN_KEY_FILE         file with the admin key, one a line; without it nobody can change the schedule
  OUTRIDER_INITIAL_SCHEDULE       rows [[first, last, K], ...] to serve with until told otherwise (the ceiling)
  OUTRIDER_SCHEDULE_FILE          a document as for PUT /schedule, read at start and when it changes
  OUTRIDER_WARM_UP_SECONDS        longest warm-up before /ready says yes ({_DEFAULT.warm_up_s:g})
  OUTRIDER_MAX_WAITING            requests that may wait before new ones get 503 (any number)
  OUTRIDER_NO_PROGRESS_SECONDS    silence after which a working engine counts as stuck ({_DEFAULT.no_progress_s:g})
  OUTRIDER_HEARTBEAT_SECONDS      idle time after which one token is generated (never)
  VLLM_USE_V2_MODEL_RUNNER        1 where K can change; set 0 on a processor, which has no Triton
  OUTRIDER_GRAPH_GUARD            0 leaves out the guard of the drafter's CUDA graphs
  {ALLOW_UNSAFE}           1 takes settings that are refused otherwise
"""


class Refused(ValueError):
    """Settings that the engine must not be started with; ``faults`` names each with its reason."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Plan:
    """How vLLM is started."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    """To be set in addition."""
    sentence: str
    """What live K comes to, in one line."""


def plan(arguments: Sequence[str], environment: Mapping[str, str]) -> Plan:
    """Complete a command line.

    Raises:
        Refused: a setting is unsafe or cannot be read.
    """
    words = _model_first(list(arguments))
    faults = [*_unsafe_flags(words), *_unsafe_variables(environment), *_api_servers(words)]
    if faults and environment.get(ALLOW_UNSAFE) != "1":
        refusals = [f"{what} is refused: it {why}" for what, why in faults]
        raise Refused([*refusals, f"set {ALLOW_UNSAFE}=1 to start all the same"])
    variables = {"VLLM_PLUGINS": _with_plugin(environment.get("VLLM_PLUGINS", ""))}
    if _value(words, "--api-server-count", "-asc") is None:
        words += ["--api-server-count", "1"]
    words, sentence, live, initial = _speculation(words)
    if live and "VLLM_USE_V2_MODEL_RUNNER" not in environment:
        variables["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    if initial is not None and INITIAL_SCHEDULE not in environment:
        variables[INITIAL_SCHEDULE] = json.dumps([[1, 1, initial]])
    if faults:
        sentence += "; UNSAFE: " + "; ".join(f"{what} {why}" for what, why in faults)
    return Plan(tuple(words), variables, sentence)


def main() -> None:
    """Print what will be done, and become vLLM."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)  # noqa: T201
        raise SystemExit(0 if arguments else 2)
    try:
        chosen = plan(arguments, os.environ)
    except Refused as refused:
        for fault in refused.faults:
            print(f"outrider: {fault}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    print(f"outrider: {chosen.sentence}", flush=True)  # noqa: T201
    os.environ.update(chosen.variables)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *chosen.arguments]
    os.execv(sys.executable, command)


def _speculation(words: list[str]) -> tuple[list[str], str, bool, int | None]:
    """Arguments with table and sizes, what they come to, whether K can change, and the K to begin with if the table is
    ours."""
    config = _speculative_config(words)
    if config is None:
        return words, "no --speculative-config: the engine does not speculate", False, None
    ceiling, method = config.get("num_speculative_tokens"), config.get("method")
    if not isinstance(ceiling, int) or ceiling < 1:
        return words, "num_speculative_tokens is not given: K stays as vLLM chooses it", False, None
    if _whole(words, 1, "--data-parallel-size", "-dp") > 1:
        return words, "vLLM drops the schedule under data parallelism: K stays as it is, scale by replicas", False, None
    if method in STATIC_METHODS:
        return words, f"method {method} drafts {ceiling} tokens in every step: K stays as it is", False, None
    table = config.get("num_speculative_tokens_per_batch_size")
    if table:
        try:
            values, initial = list(parse_rows(table, ceiling=ceiling).values), None
        except InvalidSchedule as error:
            raise Refused([f"num_speculative_tokens_per_batch_size: {fault}" for fault in error.faults]) from error
    else:
        # The table has a row for each batch size at most; what is left of a nesting set nests.
        largest = _whole(words, DEFAULT_MAX_NUM_SEQS, "--max-num-seqs")
        values, initial = list(graphs.choose_speculative_tokens(ceiling))[-largest:], ceiling
        config["num_speculative_tokens_per_batch_size"] = [[n, n, k] for n, k in enumerate(values, start=1)]
        words = _replaced(words, json.dumps(config))
    words, sizes = _with_sizes(words, values)
    return words, f"K {', '.join(map(str, values))} can change while the engine runs; {sizes}", True, initial


def _with_sizes(words: list[str], values: list[int]) -> tuple[list[str], str]:
    max_num_seqs = _whole(words, DEFAULT_MAX_NUM_SEQS, "--max-num-seqs")
    given = _numbers(words, "--cudagraph-capture-sizes")
    if given:
        unsafe = graphs.unsafe_batches(values, given, max_num_seqs)
        state = f"{len(unsafe)} batch sizes need the guard" if unsafe else "target and drafter share them all"
        return words, f"CUDA graphs of the sizes given: {state}"
    if any(_name(word) in _SIZES or word.startswith(("-O", "--compilation-config.", "-cc.")) for word in words):
        return words, "CUDA graphs as given, beside the guard"
    sizes = graphs.capture_sizes(values, graphs.capture_limit(values, max_num_seqs))
    step = graphs.step_of(values)
    words = [*words, "--cudagraph-capture-sizes", *map(str, sizes)]
    return words, f"{len(sizes)} CUDA-graph sizes up to {sizes[-1]}, multiples of {step} that target and drafter share"


def _unsafe_flags(words: Sequence[str]) -> list[Fault]:
    faults = []
    for word in words:
        name = _name(word)
        for flag, reason in _UNSAFE_FLAGS.items():
            if name == flag or (len(name) >= SHORTEST_ABBREVIATION and flag.startswith(name)):
                faults.append((f"{word.partition('=')[0]} ({flag})", reason))
    return faults


def _unsafe_variables(environment: Mapping[str, str]) -> list[Fault]:
    return [
        (name, reason)
        for name, reason in _UNSAFE_VARIABLES.items()
        if environment.get(name, "0").lower() not in ("", "0", "false")
    ]


def _api_servers(words: Sequence[str]) -> list[Fault]:
    count = _value(words, "--api-server-count", "-asc")
    if count in (None, "1"):
        return []
    return [(f"--api-server-count {count}", "leaves /metrics without step times; one server is enough for an engine")]


def _with_plugin(plugins: str) -> str:
    names = [name for name in plugins.split(",") if name]
    return ",".join(names if "outrider" in names else [*names, "outrider"])


def _model_first(words: list[str]) -> list[str]:
    """``vllm serve`` takes the model as its first word; the module that it runs wants a flag.

    Raises:
        Refused: there is no model, and vLLM would serve its default one.
    """
    if words and not words[0].startswith("-"):
        return ["--model", *words]
    if _value(words, "--model") is None:
        raise Refused(["the model is not named: it must be the first word, or follow --model"])
    return words


def _speculative_config(words: Sequence[str]) -> dict[str, Any] | None:
    parts = [word for word in words if _name(word).startswith(("--speculative-conf", "-sc.")) and not _is_config(word)]
    if parts:
        raise Refused([f"{parts[0].partition('=')[0]}: write --speculative-config out, as one JSON object"])
    text = _value(words, *_CONFIG)
    if text is None:
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise Refused([f"--speculative-config is no JSON: {error}"]) from error
    if not isinstance(config, dict):
        raise Refused(["--speculative-config must be a JSON object"])
    return {key.replace("-", "_"): value for key, value in config.items()}


def _is_config(word: str) -> bool:
    return _name(word) in _CONFIG


def _replaced(words: list[str], config: str) -> list[str]:
    kept, skip = [], False
    for word in words:
        equals = "=" in word
        if skip:
            skip = False
        elif _is_config(word):
            skip = not equals
        else:
            kept.append(word)
    return [*kept, "--speculative-config", config]


def _name(word: str) -> str:
    """The flag of a word as vLLM's parser reads it: underscores are hyphens, and ``=`` begins the value."""
    return word.partition("=")[0].replace("_", "-") if word.startswith("-") else ""


def _value(words: Sequence[str], *names: str) -> str | None:
    """The value of a flag, written ``--flag value`` or ``--flag=value``; of several the last, as in vLLM."""
    found = None
    for position, word in enumerate(words):
        _, equals, value = word.partition("=")
        if _name(word) in names:
            found = value if equals else (words[position + 1] if position + 1 < len(words) else "")
    return found


def _numbers(words: Sequence[str], flag: str) -> list[int]:
    names = [_name(word) for word in words]
    if flag not in names:
        return []
    following = takewhile(str.isdigit, words[names.index(flag) + 1 :])
    return [int(word) for word in following]


def _whole(words: Sequence[str], default: int, *names: str) -> int:
    text = _value(words, *names) or ""
    return int(text) if text.isdigit() and int(text) else default


if __name__ == "__main__":
    main()
