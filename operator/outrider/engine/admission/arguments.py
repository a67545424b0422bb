"""Arguments and variables of the user's own."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine import capabilities as known
from outrider.engine import flags
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

_ARGUMENTS = "spec.engine.extraArgs"


def _refused(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.extra_args and not config.extra_args[0].startswith("-"):
        yield error(
            f"{_ARGUMENTS}[0]",
            f"{_ARGUMENTS}[0] is {config.extra_args[0]!r}, which vLLM would take for a model: begin with a flag",
        )
    for field, argument in _numbered(config):
        flag = flags.owned_flag(argument)
        if flag is None:
            continue
        name = argument.split("=", 1)[0]
        meaning = flag if name == flag else f"{name}, which vLLM may read as {flag},"
        yield error(field, f"{field}: {meaning} {flags.REFUSED[flag]}; remove it")


def _set_twice(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    for names, path, given in (
        (("--enable-lora", "--max-loras", "--max-lora-rank", "--lora-modules"), "spec.engine.lora", config.lora),
        (
            ("--enable-prefix-caching", "--no-enable-prefix-caching"),
            "spec.engine.prefixCaching",
            config.prefix_caching,
        ),
        (
            ("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
            "spec.engine.chunkedPrefill",
            config.chunked_prefill,
        ),
        (
            ("--structured-outputs-config", "--guided-decoding-backend"),
            "spec.engine.structuredOutputBackend",
            config.structured_output_backend,
        ),
        (("--max-num-queued-reqs",), "spec.engine.maxQueuedRequests", config.max_queued_requests),
        (("--max-num-queued-tokens",), "spec.engine.maxQueuedTokens", config.max_queued_tokens),
        (("--kv-transfer-config",), "spec.engine.kvTransfer", config.kv_transfer),
    ):
        if given is None:
            continue
        for field, argument in _numbered(config):
            flag = next((name for name in names if flags.spells(argument, name)), None)
            if flag is not None:
                yield error(field, f"{field}: {flag} is set in two places, here and by {path}: remove one of them")


def _not_in_version(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.version is None:
        return
    for field, argument in _numbered(config):
        name = known.flag_name(argument)
        if name is None or name not in known.FLAGS_BY_VERSION:
            continue
        history, instead = known.FLAGS_BY_VERSION[name]
        there = history.at(config.version)
        if there is False:
            yield error(
                field,
                f"{field}: vLLM {config.version} has no {name}, which is there {history.words()}, and would not start:"
                f" {instead}",
            )
        elif there is None and not known.is_later(config.version):
            yield warning(
                field,
                f"{field}: nobody looked whether vLLM {config.version} has {name}, which is there {history.words()};"
                " an engine ends at start on a flag that it does not know",
            )


def _eager(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    for field, argument in _numbered(config):
        if flags.spells(argument, "--enforce-eager"):
            yield warning(
                field,
                f"{field}: with --enforce-eager there are no CUDA graphs, so every step is slower, most of all at small"
                " batches; remove it unless you look for a fault",
            )


def _variables(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    for name in config.extra_env:
        why = flags.refused_variable(name)
        if why is not None:
            yield error("spec.engine.env", f"spec.engine.env: {name} {why}; remove it")


def _numbered(config: EngineConfig) -> Iterator[tuple[str, str]]:
    for position, argument in enumerate(config.extra_args):
        yield f"{_ARGUMENTS}[{position}]", argument


CHECKS = (
    Check(
        code="ArgumentRefused",
        fields=(_ARGUMENTS,),
        why="The operator sets these flags itself, or they open the engine or take its metrics away; vLLM also takes"
        " abbreviations, underscores, values behind = and keys behind a dot, so every spelling is looked at.",
        remedy="Remove the flag and set the field that stands for it.",
        source="vllm/utils/argparse_utils.py and vllm/engine/arg_utils.py of vLLM 0.33.0",
        find=_refused,
    ),
    Check(
        code="ArgumentSetTwice",
        fields=(_ARGUMENTS,),
        why="Of a flag that is given twice vLLM takes the last one without a word.",
        remedy="Keep the field or the flag, not both.",
        source="vllm/utils/argparse_utils.py of vLLM 0.33.0; vllm-project/vllm#24888",
        find=_set_twice,
    ),
    Check(
        code="ArgumentNotInVersion",
        fields=(_ARGUMENTS,),
        why="vLLM ends at start on a flag that its version does not have.",
        remedy="Use the flag or field that took its place.",
        source="vllm/engine/arg_utils.py of the versions in the table of flags",
        find=_not_in_version,
    ),
    Check(
        code="EagerEngine",
        fields=(_ARGUMENTS,),
        why="Without CUDA graphs the launch of each kernel costs more than the kernel at small batches.",
        remedy="Remove --enforce-eager.",
        source="vllm/config/vllm.py of vLLM 0.33.0",
        find=_eager,
    ),
    Check(
        code="VariableRefused",
        fields=("spec.engine.env",),
        why="The operator sets these variables itself, or they open the engine.",
        remedy="Remove the variable.",
        source="vllm/envs.py of vLLM 0.33.0",
        find=_variables,
    ),
)
