"""Model and drafter as their own ``config.json`` describes them; without it nothing here is said."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine import capabilities as known
from outrider.engine.admission.checks import Check, Said, error, warning
from outrider.engine.config import EngineConfig
from outrider.engine.model_facts import PairFacts

_DRAFT = "spec.speculation.draft.id"
_METHOD = "spec.speculation.method"
_CEILING = "spec.speculation.maxSpeculativeTokens"
NO_TARGET = "the model's config.json is not known"
NO_DRAFTER = "the drafter's config.json is not known"


def pair_lacks(config: EngineConfig, facts: PairFacts) -> str | None:
    """Why a rule of both models cannot be asked."""
    if not config.speculates or config.drafter is None:
        return None
    return NO_TARGET if facts.target is None else NO_DRAFTER if facts.drafter is None else None


def _target_lacks(_: EngineConfig, facts: PairFacts) -> str | None:
    return NO_TARGET if facts.target is None else None


def _vocabulary(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if config.method != "draft_model" or not config.speculates or facts.target is None or facts.drafter is None:
        return
    target, drafter = facts.target.vocab_size, facts.drafter.vocab_size
    if not isinstance(target, int) or not isinstance(drafter, int) or target == drafter or config.heterogeneous_vocab:
        return
    yield error(
        _DRAFT,
        f"{_DRAFT}: the drafter's vocabulary has {drafter} entries and the model's {target}, and vLLM refuses pairs"
        " that differ, even by padding alone: choose a drafter of the same size, or set"
        " spec.speculation.heterogeneousVocab with vLLM 0.29 or later",
    )


def _target_of_drafter(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if config.method != "eagle" or not config.speculates or facts.target is None or facts.drafter is None:
        return
    target, drafter = facts.target.hidden_size, facts.drafter.hidden_size
    if isinstance(target, int) and isinstance(drafter, int) and target != drafter:
        yield warning(
            _DRAFT,
            f"{_DRAFT}: the drafter's hidden size is {drafter} and the model's {target}: an EAGLE head reads the"
            " model's hidden states, so it was trained for another model; choose one that was trained for this",
        )


def _modules(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if config.method != "mtp" or not config.speculates:
        return
    model = facts.drafter or facts.target
    if model is None:
        return
    k, modules = config.max_speculative_tokens, model.n_predict
    if not isinstance(modules, int):
        yield warning(
            _METHOD,
            f"{_METHOD} is mtp, and config.json names no layers that predict further tokens: if there are none the"
            " engine ends at start; choose a checkpoint that has them, or another method",
        )
    elif k > modules and k % modules:
        below = k - k % modules
        yield error(
            _CEILING,
            f"{_CEILING} is {k}, and the model has {modules} layers that predict further tokens: beyond {modules} it"
            f" must be a multiple of {modules}, such as {below} or {below + modules}",
        )


def _special(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if config.method != "mtp" or not config.speculates or facts.target is None:
        return
    if facts.target.model_type == "deepseek_v41":
        yield error(
            _METHOD,
            f"{_METHOD} is mtp, and DeepSeek V4.1 has none: its checkpoints hold stages for method dspark; set that",
        )
    if any("Parse" in name for name in facts.target.architectures) and config.max_speculative_tokens != 1:
        yield error(
            _CEILING,
            f"{_CEILING} is {config.max_speculative_tokens}, and this family has one trained step: set it to 1",
        )


def _lengths(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if facts.target is not None and isinstance(facts.target.max_positions, int):
        positions = facts.target.max_positions
        if config.max_length is not None and config.max_length > positions:
            yield warning(
                "spec.model.maxLength",
                f"spec.model.maxLength is {config.max_length} and config.json gives the model {positions} positions:"
                " vLLM refuses more unless the model scales its positions; lower it",
            )
    if not config.speculates or config.drafter is None or facts.drafter is None:
        return
    positions_of_drafter = facts.drafter.max_positions
    if not isinstance(positions_of_drafter, int):
        return
    asked = config.drafter.max_length
    if asked is not None and asked > positions_of_drafter:
        yield error(
            "spec.speculation.draft.maxLength",
            f"spec.speculation.draft.maxLength is {asked} and the drafter has {positions_of_drafter} positions: lower"
            " it, or leave it out",
        )
    served = config.max_length or (facts.target.max_positions if facts.target is not None else None)
    if config.method == "draft_model" and isinstance(served, int) and positions_of_drafter < served:
        yield warning(
            _DRAFT,
            f"{_DRAFT}: the drafter has {positions_of_drafter} positions and the service {served}: vLLM lowers the"
            f" longest context to {positions_of_drafter}; set spec.model.maxLength to it to say so, or choose another"
            " drafter",
        )


def _hybrid(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if config.speculates and facts.target is not None and facts.target.mamba and known.table_possible(config):
        yield warning(
            _METHOD,
            f"{_METHOD} {config.method}: the model ({facts.target.model_type}) keeps a Mamba state, and by reading vLLM"
            " 0.33 cannot capture graphs for several K there; if the engine ends at start set tuning.mode Off",
        )


def _positions(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if not config.speculates or facts.target is None or not facts.target.mrope:
        return
    if config.method == "draft_model" and known.runner(config) == "V1":
        yield error(
            _METHOD,
            f"{_METHOD} is draft_model, and the model has positions of several dimensions (M-RoPE): vLLM's older"
            " runner, which heterogeneousVocab needs, cannot draft for it; use a method that was"
            " trained for the model, such as eagle3",
        )
    elif config.method in ("eagle", "eagle3", "mtp") and known.capabilities(config.version) is None:
        yield warning(
            _METHOD,
            f"{_METHOD} is {config.method}, and the model has positions of several dimensions (M-RoPE): on the"
            " older runner, which this version of vLLM may use, wrong drafts were seen; watch acceptance with images in"
            " the prompt",
        )


def _speculators(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if facts.target is not None and facts.target.speculators:
        yield error(
            "spec.model.id",
            f"spec.model.id: {config.model} is a drafter in the speculators format, from which vLLM would make a"
            " configuration of its own: name the model that it was trained for, and this one as"
            " spec.speculation.draft.id",
        )


def _remote_code(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    for field, model in (("spec.model.id", facts.target), (_DRAFT, facts.drafter)):
        if model is not None and model.remote_code and not config.trust_remote_code:
            yield warning(
                field,
                f"{field}: the repository brings code of its own, which runs only with spec.security.trustRemoteCode;"
                " vLLM has code for many such families itself and then needs none",
            )


def _quantised_by_another_name(config: EngineConfig, facts: PairFacts) -> Iterator[Said]:
    if facts.target is None or facts.target.quantization is None or config.quantization is None:
        return
    own, asked = facts.target.quantization, config.quantization.lower()
    if own.replace("-", "_") not in asked.replace("-", "_") and asked not in ("auto", "compressed-tensors"):
        yield warning(
            "spec.model.quantization",
            f"spec.model.quantization is {config.quantization}, and the weights are stored as {own}: vLLM refuses most"
            " such pairs; leave it out, and it is read from the model",
        )


_SPECULATIVE = "vllm/config/speculative.py of vLLM 0.33.0"

CHECKS = (
    Check(
        code="VocabularyMismatch",
        fields=(_DRAFT, "spec.model.id", "spec.speculation.heterogeneousVocab"),
        why="A plain draft model proposes token numbers, which mean the same only in one vocabulary; vLLM compares"
        " sizes, padding included.",
        remedy="Choose a drafter of the same vocabulary, or map the vocabularies with heterogeneousVocab.",
        source="vllm-project/vllm#5203, vllm-project/vllm#7252, vllm-project/vllm#14939, vllm-project/vllm#42775",
        find=_vocabulary,
        lacks=lambda config, facts: pair_lacks(config, facts) if config.method == "draft_model" else None,
    ),
    Check(
        code="DrafterOfAnotherModel",
        fields=(_DRAFT,),
        why="An EAGLE head reads the hidden states of the model that it was trained for.",
        remedy="Choose the head of this model.",
        source="vllm/model_executor/models/llama_eagle.py of vLLM 0.33.0",
        find=_target_of_drafter,
        lacks=lambda config, facts: pair_lacks(config, facts) if config.method == "eagle" else None,
    ),
    Check(
        code="PredictionModules",
        fields=(_CEILING, _METHOD),
        why="Layers that predict further tokens are run in turn, so a K beyond their number must be a multiple of it.",
        remedy="Set maxSpeculativeTokens to their number or a multiple.",
        source=f"__post_init__ in {_SPECULATIVE}",
        find=_modules,
        lacks=lambda config, facts: (
            NO_TARGET
            if config.speculates and config.method == "mtp" and (facts.drafter or facts.target) is None
            else None
        ),
    ),
    Check(
        code="PredictionOfFamily",
        fields=(_METHOD, _CEILING),
        why="A few families cannot do what method mtp asks.",
        remedy="Use the method that the family has.",
        source=f"__post_init__ in {_SPECULATIVE}",
        find=_special,
        lacks=lambda config, facts: (
            NO_TARGET if config.speculates and config.method == "mtp" and facts.target is None else None
        ),
    ),
    Check(
        code="ContextLength",
        fields=("spec.model.maxLength", "spec.speculation.draft.maxLength", _DRAFT),
        why="Neither model has positions beyond those that it was made with.",
        remedy="Lower the length.",
        source=f"_maybe_override_draft_max_model_len in {_SPECULATIVE}; vllm-project/vllm#21986",
        find=_lengths,
        lacks=_target_lacks,
    ),
    Check(
        code="HybridWithTable",
        fields=(_METHOD, "spec.model.id"),
        why="Mamba-1 and Mamba-2 layers are captured for the ceiling alone.",
        remedy="Try it before you rely on it; without a drafter such a model is safe.",
        source="vllm/v1/attention/backends/mamba_attn.py of vLLM 0.33.0",
        find=_hybrid,
        lacks=_target_lacks,
    ),
    Check(
        code="MultiModalPositions",
        fields=(_METHOD, "spec.model.id"),
        why="Drafters of older runners know one position a token.",
        remedy="Use a drafter that was trained for the model, and watch acceptance.",
        source="vllm-project/vllm#54498; _raise_if_mrope in vllm/v1/spec_decode/llm_base_proposer.py of vLLM 0.33.0",
        find=_positions,
        lacks=_target_lacks,
    ),
    Check(
        code="DrafterAsModel",
        fields=("spec.model.id",),
        why="A drafter in the speculators format names its target itself, so vLLM would ignore ours.",
        remedy="Name the target as the model.",
        source="maybe_override_with_speculators in vllm/transformers_utils/config.py of vLLM 0.33.0",
        find=_speculators,
        lacks=_target_lacks,
    ),
    Check(
        code="RemoteCode",
        fields=("spec.security.trustRemoteCode", "spec.model.id", _DRAFT),
        why="Code of a repository runs with the rights of the engine.",
        remedy="Read it, pin the revision, and set security.trustRemoteCode if you must.",
        source="vllm/config/model.py of vLLM 0.33.0",
        find=_remote_code,
        lacks=_target_lacks,
    ),
    Check(
        code="QuantizationDiffers",
        fields=("spec.model.quantization",),
        why="Weights that are stored quantised can be read in that form only.",
        remedy="Leave model.quantization out.",
        source="_verify_quantization in vllm/config/model.py of vLLM 0.33.0",
        find=_quantised_by_another_name,
        lacks=_target_lacks,
    ),
)
