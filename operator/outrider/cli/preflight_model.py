"""What to look at before a service is deployed: the models, the workload, the GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outrider.cli.preflight_outcome import (
    PreflightCheck,
    Subject,
    Verdict,
    doubt,
    not_checked,
    ok,
    repeated,
)
from outrider.core.series import Missing
from outrider.engine import memory
from outrider.engine.gpus import PRODUCT_LABEL

SMALL_PARAMETERS = 4e9
"""Below it a model fits a single GPU of any size, and loses most by four bits."""
PAIR_CODES = (
    "VocabularyMismatch",
    "DrafterOfAnotherModel",
    "DrafterParallelism",
    "HeadsNotDivisible",
    "PredictionModules",
    "PredictionOfFamily",
    "ContextLength",
    "DrafterLength",
    "MultiModalPositions",
    "HybridWithTable",
    "DrafterAsModel",
    "GgufWithDrafter",
)
LOOKED_UP = ("ngram", "suffix")
SAFE_LOOKUP = 8
"""Tokens that must match before ngram drafts; with 2 about half of the tool calls were spoilt, with 8 next to none
(vllm-project/vllm#40875)."""
COMMIT = re.compile(r"^[0-9a-f]{40}$")
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def _quantization(subject: Subject) -> Iterator[Verdict]:
    config, facts = subject.config, subject.facts.target
    yield from repeated(subject, ("QuantizationDiffers", "QuantizationUnknown"))
    asked = config.quantization or (facts.quantization if facts is not None else None)
    if asked is None:
        yield ok("the weights are not quantised, as far as the resource says")
        return
    field, bits = "spec.model.quantization", memory.bits_of(asked)
    parameters = memory.parameters(facts) if facts is not None else memory.parameters_by_name(config.model)
    if bits == 4 and parameters is not None and parameters < SMALL_PARAMETERS:
        yield doubt(
            field,
            f"{field} is {asked}: a model of {parameters / 1e9:.1f} billion parameters gains little memory from four"
            " bits and loses most accuracy; keep 16 bits, or fp8",
        )
    if bits == 4 and subject.workload in ("code", "math"):
        yield doubt(
            field,
            f"{field} is {asked}, and the workload is {subject.workload}: four bits cost accuracy there, on maths 11 %"
            " on average and up to 32 % in one study; compare answers, or use fp8",
        )
    if bits == 8 and "fp8" in asked and subject.gpu is not None and not subject.gpu.fp8:
        yield doubt(
            field,
            f"{field} is {asked}, and {subject.gpu.name} does not compute in 8-bit floats: it saves memory, and no time"
            " where many requests run; awq or gptq weights are the usual choice there",
        )
    yield ok(f"{asked}, {'of unknown width' if bits is None else f'{bits:g} bits'}")


def _pair(subject: Subject) -> Iterator[Verdict]:
    if not subject.config.speculates:
        yield not_checked("the engine starts without speculation")
        return
    said = list(repeated(subject, PAIR_CODES))
    yield from said
    if said:
        return
    if subject.config.drafter is None:
        yield ok(f"method {subject.config.method} has no draft model of its own")
    elif subject.facts.target is None or subject.facts.drafter is None:
        unknown = "model's" if subject.facts.target is None else "drafter's"
        yield not_checked(f"the {unknown} config.json is not known: give it with --model-config and --draft-config")
    else:
        yield ok("vocabulary, heads, positions and modules of both fit")


def _workload(subject: Subject) -> Iterator[Verdict]:
    config, workload = subject.config, subject.workload
    if not config.speculates:
        yield not_checked("the engine starts without speculation")
        return
    if workload is None:
        yield not_checked("the workload is not known: name it with --workload")
        return
    method, k = "spec.speculation.method", config.max_speculative_tokens
    if workload == "creative":
        yield doubt(
            "spec.speculation",
            "spec.speculation: of creative text at high temperature few drafts are accepted; keep"
            f" maxSpeculativeTokens at 3 or less (it is {k}), minSpeculativeTokens at 0 and tuning.mode Adaptive",
        )
    elif workload in ("chat", "translate", "math") and config.method in LOOKED_UP:
        yield doubt(
            method,
            f"{method} is {config.method}, which proposes what stood in the text before: answers of {workload} repeat"
            " little of it; use a trained drafter, such as eagle3",
        )
    elif workload == "agent" and config.method == "ngram" and _lookup_min(subject) < SAFE_LOOKUP:
        yield doubt(
            "spec.speculation.ngram.promptLookupMin",
            f"spec.speculation.ngram.promptLookupMin is {_lookup_min(subject)}, and the workload is agent: short"
            f" look-ups were seen to spoil tool calls; set {SAFE_LOOKUP}, or use a trained drafter",
        )
    elif workload in ("summarise", "rag") and config.method not in LOOKED_UP:
        yield ok(f"{config.method} suits {workload}; ngram costs no GPU memory and is worth a comparison there")
    else:
        yield ok(f"{config.method} suits {workload}")


def _lookup_min(subject: Subject) -> int:
    return subject.resolved.prompt_lookup[0] if subject.resolved.prompt_lookup is not None else SAFE_LOOKUP


def _memory(subject: Subject) -> Iterator[Verdict]:
    said = list(repeated(subject, ("MemoryFit",)))
    yield from said
    if said:
        return
    found = memory.estimate(subject.config, subject.facts)
    if isinstance(found, Missing):
        how = "--gpu-memory or a node selector" if subject.config.gpu_memory_bytes is None else "--model-config"
        yield not_checked(f"{found}: give {how}")
    else:
        yield ok(found.words())


def _interconnect(subject: Subject) -> Iterator[Verdict]:
    tensor, gpu = subject.config.tensor_parallel_size, subject.gpu
    if tensor == 1:
        yield ok("each layer is on one GPU")
    elif gpu is None:
        yield not_checked(f"the product is not known: select nodes by {PRODUCT_LABEL} in spec.placement.nodeSelector")
    elif gpu.interconnect == "PCIe":
        yield doubt(
            "spec.parallelism.tensor",
            f"spec.parallelism.tensor is {tensor}, and {gpu.name} is linked by PCIe: every layer waits twice for all"
            " GPUs, which costs most at small batches; use as few as the model needs, pipeline stages, or GPUs with"
            " NVLink",
        )
    elif gpu.interconnect == "NVLink in pairs" and tensor > 2:
        yield doubt(
            "spec.parallelism.tensor",
            f"spec.parallelism.tensor is {tensor}, and {gpu.name} has NVLink between two GPUs only: beyond 2 every"
            " layer waits for PCIe; use 2, or GPUs that are linked all to all",
        )
    else:
        yield ok(f"{gpu.name} is linked by {gpu.interconnect} on its usual board")


def _revisions(subject: Subject) -> Iterator[Verdict]:
    spec, draft = subject.resource.spec, subject.resource.spec.speculation.draft
    named = [("spec.model", spec.model.id, spec.model.revision, subject.resolved.model_source)]
    if draft is not None and subject.config.speculates:
        named.append(("spec.speculation.draft", draft.id, draft.revision, subject.resolved.draft_source))
    found = False
    for path, name, revision, source in named:
        if source != "hub" or name.startswith("/"):
            continue
        if revision is None:
            found = True
            yield doubt(
                f"{path}.revision",
                f"{path}.revision is not set: a pod that starts tomorrow may load other weights of {name} than those"
                " that run; set the commit",
            )
        elif COMMIT.match(revision) is None:
            found = True
            yield doubt(
                f"{path}.revision",
                f"{path}.revision is {revision}, which can move like any branch or tag: set the commit, 40 digits",
            )
    image = spec.engine.image
    if image is not None and DIGEST.search(image) is None:
        found = True
        yield doubt("spec.engine.image", f"spec.engine.image is {image}: pin it by digest, @sha256:…")
    if not found:
        yield ok("weights and image are pinned, or come from a place of your own")


CHECKS = (
    PreflightCheck(
        name="quantization-fit",
        why="Quantised weights save memory and time, but not everywhere: small models lose most, maths and code show it"
        " first, and older GPUs do not compute in 8-bit floats.",
        remedy="Keep 16 bits for small models, fp8 where GPUs have it, and compare answers before four bits.",
        source="arXiv:2501.03035, arXiv:2505.11574",
        look=_quantization,
    ),
    PreflightCheck(
        name="draft-compatibility",
        why="A drafter must fit its model in vocabulary, heads, positions and layers, or the engine ends at start.",
        remedy="Choose the drafter that was trained for the model.",
        source="vllm-project/vllm#5203, vllm-project/vllm#31886",
        look=_pair,
    ),
    PreflightCheck(
        name="workload-fit",
        why="What a drafter yields depends on the text: code and summaries repeat, creative text does not.",
        remedy="Choose method and ceiling by the workload, and let tuning find the rest.",
        source="arXiv:2604.09557, arXiv:2401.07851, vllm-project/vllm#56077, vllm-project/vllm#40875",
        look=_workload,
    ),
    PreflightCheck(
        name="memory-fit",
        why="Weights, drafter, buffers and KV cache share the memory of a GPU.",
        remedy="More or larger GPUs, quantised weights, or a shorter context.",
        source="vllm-project/vllm#8073, vllm-project/vllm#9995",
        look=_memory,
    ),
    PreflightCheck(
        name="interconnect",
        why="Tensor parallelism sends the hidden states of every layer between all GPUs, twice.",
        remedy="Use GPUs with NVLink, or fewer of them.",
        source="NVIDIA's data sheets; arXiv:1909.08053 (section 3)",
        look=_interconnect,
    ),
    PreflightCheck(
        name="pinned-revisions",
        why="A moving name serves other weights after a restart, and acceptance changes with them.",
        remedy="Set commits and digests.",
        source="revision in vllm/config/model.py of vLLM 0.33.0",
        look=_revisions,
    ),
)
