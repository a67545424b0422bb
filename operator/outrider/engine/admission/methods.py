"""Way to draft and version of vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine import capabilities as known
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.capabilities import Feature
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

_METHOD = "spec.speculation.method"
_VERSION = "spec.engine.version"


def _version(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.version is None:
        yield warning(
            _VERSION,
            "spec.engine.image is set without spec.engine.version: the version is unknown, so nothing that depends on"
            " it was checked; set spec.engine.version to what the image holds",
        )
    elif known.is_later(config.version):
        yield warning(
            _VERSION,
            f"vLLM {config.version} is later than the versions that were looked at, the last of them"
            f" {known.LOOKED_AT[-1]}: nothing that depends on it was checked",
        )
    elif config.speculates and known.capabilities(config.version) is None:
        yield warning(
            _VERSION,
            f"vLLM {config.version} is not in the table of versions whose runner was studied (0.33): it is run as that"
            " one, and how it changes K while it runs was not checked",
        )


def _there(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if not config.speculates or config.version is None:
        return
    there, field = known.method_there(config.version, config.method), f"{_METHOD}: vLLM {config.version}"
    if there is False:
        there_are = ", ".join(known.methods_of(config.version))
        yield error(
            _METHOD, f"{field} has no {config.method}: choose among {there_are}, or another spec.engine.version"
        )
    elif there is None and config.method in known.METHODS and not known.is_later(config.version):
        history = known.METHODS[config.method]
        yield warning(
            _METHOD,
            f"{field}: nobody looked whether it has {config.method}, which is there {history.words()}; an engine ends"
            " at start on a method that it does not know",
        )


def _features(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    for field, feature in known.asked(config):
        there, history = known.supports(config.version, feature), known.FEATURES[feature]
        if there is False:
            yield error(
                field,
                f"{field}: vLLM {config.version} does not know it ({feature.value}), which is there {history.words()};"
                " leave it out, or set a spec.engine.version that has it",
            )
        elif there is None and config.version is not None and not known.is_later(config.version):
            yield warning(
                field,
                f"{field}: nobody looked whether vLLM {config.version} knows it ({feature.value}), which is there"
                f" {history.words()}",
            )


def _old_engine(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.speculates and known.on_old_engine(config.version, config.method):
        yield warning(
            _METHOD,
            f"{_METHOD}: vLLM {config.version} runs {config.method} on the old engine: other metric names, and no"
            " acceptance by position; a newer spec.engine.version has both",
        )


def _drain(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if not known.has(config.version, Feature.SHUTDOWN_TIMEOUT):
        yield warning(
            "spec.drain.shutdownTimeoutSeconds",
            f"no drain in this version: vLLM {config.version} cannot finish running requests when it stops (that came"
            " with 0.18), so answers will be cut off; set a later spec.engine.version",
        )


def _suffix(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    if config.speculates and config.method == "suffix":
        yield warning(
            _METHOD,
            f"{_METHOD}: suffix needs the package arctic-inference in the image, and the engine ends at"
            " start without it; name an image that has it in spec.engine.image",
        )


def _exclusive(config: EngineConfig, _: PairFacts) -> Iterator[Said]:
    """Options that belong to one method; the schema says the same where a method cannot be changed by others."""
    if not config.speculates:
        return
    for field, given, methods in (
        ("spec.speculation.ngram", config.ngram, ("ngram",)),
        ("spec.speculation.suffix", config.suffix, ("suffix",)),
        ("spec.speculation.heterogeneousVocab", config.heterogeneous_vocab, ("draft_model",)),
        ("spec.speculation.adaptiveVerification", config.adaptive_verification, ("dspark",)),
        ("spec.speculation.draftHeadQuantization", config.draft_head_quantization, ("eagle", "eagle3", "mtp")),
    ):
        if given and config.method not in methods:
            yield error(
                field,
                f"{field} is only for method {' or '.join(methods)}, and the method is {config.method}: remove it",
            )


CHECKS = (
    Check(
        code="MethodNotInVersion",
        fields=(_METHOD, _VERSION),
        why="Methods came and went: a plain draft model works up to vLLM 0.9, is refused in 0.10 to 0.13, and is back"
        " later.",
        remedy="Choose a method that the version has, or another version.",
        source="vllm-project/vllm#31883, and the table of methods",
        find=_there,
    ),
    Check(
        code="FeatureNotInVersion",
        fields=("spec.speculation", "spec.engine", "spec.parallelism.data"),
        why="vLLM ends at start on a flag or key that its version does not have.",
        remedy="Leave the field out, or choose a version that has what it stands for.",
        source="the table of features",
        find=_features,
    ),
    Check(
        code="OptionOfAnotherMethod",
        fields=("spec.speculation",),
        why="vLLM refuses these options with any other method.",
        remedy="Remove the option, or change the method.",
        source="_verify_args in vllm/config/speculative.py of vLLM 0.33.0",
        find=_exclusive,
    ),
    Check(
        code="VersionNotStudied",
        fields=(_VERSION, "spec.engine.image"),
        why="What a version can do is known for the versions that were read; any other is run as the best known one.",
        remedy="Set engine.version to what the image holds, and prefer a studied version.",
        source="the table of versions",
        find=_version,
    ),
    Check(
        code="OldEngine",
        fields=(_METHOD, _VERSION),
        why="Up to vLLM 0.9 some methods run on the engine of before 0.8, whose metrics have other names and no"
        " acceptance by position.",
        remedy="Use a newer version.",
        source="vllm/engine/arg_utils.py of vLLM 0.9.2; " + known.OLD_ENGINE[""].source,
        find=_old_engine,
    ),
    Check(
        code="NoDrain",
        fields=("spec.drain.shutdownTimeoutSeconds", _VERSION),
        why="Before vLLM 0.18 an engine aborts everything when it is told to stop.",
        remedy="Use vLLM 0.18 or later.",
        source=known.FEATURES[Feature.SHUTDOWN_TIMEOUT].source + ", vllm-project/vllm#24885",
        find=_drain,
    ),
    Check(
        code="SuffixPackage",
        fields=(_METHOD, "spec.engine.image"),
        why="vLLM raises an ImportError for method suffix unless arctic-inference is installed.",
        remedy="Use an image that has the package.",
        source="_validate_suffix_decoding in vllm/config/speculative.py of vLLM 0.33.0",
        find=_suffix,
    ),
)
