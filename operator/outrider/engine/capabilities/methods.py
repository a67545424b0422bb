"""Ways to draft, and the versions that have them."""

from __future__ import annotations

from outrider.engine.capabilities.versions import KNOWN_BEST, History, absent, history, there

_SPECULATIVE = "vllm/config/speculative.py"
_OLD = "vllm/config.py"

METHODS: dict[str, History] = {
    "draft_model": history(
        there("0.6.3", "0.9.2"),
        absent("0.10.0", "0.13.0"),
        there("0.18.1"),
        source="vllm-project/vllm#31883, docs/features/spec_decode of vLLM 0.14.0 on 0.10.0, vllm-project/vllm#24322;"
        " NotImplementedError in vllm/engine/arg_utils.py of"
        " vLLM 0.11.0 and 0.13.0",
    ),
    "eagle": history(
        there("0.6.3"),
        source=f"vllm/transformers_utils/configs/eagle.py of vLLM 0.6.3.post1, {_SPECULATIVE} of vLLM 0.33.0",
    ),
    "eagle3": history(
        absent("0.6.3", "0.6.3"), there("0.8.5"), source=f"{_OLD} of vLLM 0.8.5.post1, {_SPECULATIVE} of vLLM 0.33.0"
    ),
    "mtp": history(
        absent("0.6.3", "0.9.2"),
        there("0.11.0"),
        source=f"{_OLD} of vLLM 0.9.2, where it is called deepseek_mtp; {_SPECULATIVE} of vLLM 0.11.0",
    ),
    "ngram": history(there("0.6.3"), source=f"{_OLD} of vLLM 0.6.3.post1, {_SPECULATIVE} of vLLM 0.33.0"),
    "suffix": history(
        absent("0.6.3", "0.11.0"), there("0.13.0"), source=f"{_SPECULATIVE} of vLLM 0.11.0, 0.13.0 and 0.33.0"
    ),
    "dflash": history(
        absent("0.6.3", "0.18.1"), there("0.20.2"), source=f"{_SPECULATIVE} of vLLM 0.18.1, 0.20.2 and 0.33.0"
    ),
    "dspark": history(
        absent("0.6.3", "0.24.0"), there("0.29.0"), source=f"{_SPECULATIVE} of vLLM 0.24.0, 0.29.0 and 0.33.0"
    ),
    "medusa": history(there("0.6.3", "0.32.0"), absent("0.33.0"), source=f"{_SPECULATIVE} of vLLM 0.32.0 and 0.33.0"),
    "mlp_speculator": history(
        there("0.6.3", "0.32.0"), absent("0.33.0"), source=f"{_SPECULATIVE} of vLLM 0.32.0 and 0.33.0"
    ),
}
"""By vLLM's word. The API offers fewer: what newer engines dropped is here to say so."""

OLD_ENGINE: dict[str, History] = {
    "draft_model": history(there("0.6.3", "0.9.2"), absent("0.11.0"), source="vllm/engine/arg_utils.py of vLLM 0.9.2"),
    "mlp_speculator": history(
        there("0.6.3", "0.9.2"), absent("0.11.0"), source="vllm/engine/arg_utils.py of vLLM 0.9.2"
    ),
    "medusa": history(
        there("0.6.3", "0.8.5"), absent("0.9.2"), source="vllm/engine/arg_utils.py of vLLM 0.8.5.post1 and 0.9.2"
    ),
    "": history(
        there("0.6.3", "0.8.5"),
        absent("0.9.2"),
        source="vllm/engine/arg_utils.py of vLLM 0.8.5.post1, which leaves its new engine for any way to draft",
    ),
}
"""Methods that a version runs on the engine that vLLM had before 0.8, whose metrics have other names; ``""`` stands for
all that are not named."""


def method_there(version: str | None, method: str) -> bool | None:
    """Whether a version has a method; None when unknown, as for a method or version that nobody looked at."""
    if version is None or method not in METHODS:
        return None
    return METHODS[method].at(version)


def methods_of(version: str) -> tuple[str, ...]:
    """The methods that a version is known to have, by name; without those that newer engines dropped, which no resource
    can ask for."""
    return tuple(
        sorted(name for name, known in METHODS.items() if known.at(version) and known.at(KNOWN_BEST) is not False)
    )


def on_old_engine(version: str | None, method: str) -> bool:
    """Whether this method is known to run on the old engine of that version."""
    return version is not None and OLD_ENGINE.get(method, OLD_ENGINE[""]).at(version) is True
