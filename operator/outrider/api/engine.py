"""The part of the spec about the inference engine: image, arguments, batch, caches, adapters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.arguments import Argument, EnvironmentName
from outrider.api.fields import VERSION_PATTERN, Bool, Image, Int, ModelId, ObjectName, PullPolicy, SecretKey, Word
from outrider.api.raw import Raw
from outrider.api.rules import Part, Rule, named, unique

StructuredOutputBackend = Literal["auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer"]
LoraRank = Literal[8, 16, 32, 64, 128, 256, 320, 512]


class EnvironmentVariable(Part):
    """One variable of the engine's environment, by value or from a Secret."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.value) != has(self.secret)",
            lambda variable: (variable.value is None) != (variable.secret is None),
            "give a variable of engine.env either value or secret",
        ),
    )

    name: EnvironmentName
    """Name of the variable, up to 128 characters, for example `VLLM_LOGGING_LEVEL`; not one that the operator sets."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value as it stands, up to 4096 characters, for example `DEBUG`; taken from secret when left out."""
    secret: SecretKey | None = None
    """Secret key that holds its value, for example `{name: chat-clients, key: key}`; the pod waits until it exists.
    Taken from value when left out."""


class LoraModule(Part):
    """One adapter that the engine serves beside the model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$", max_length=128)]
    """Name that clients ask for, up to 128 characters and not the model's own, for example `chat-legal`."""
    id: ModelId
    """Repository of the adapter, or a path inside the container, for example `org/llama-3.1-8b-legal-lora`."""


class Lora(Part):
    """Adapters on top of the model; the drafter has none, so acceptance differs between them."""

    max_adapters: Annotated[Int, Field(ge=1, le=64)] | None = None
    """Most adapters in one engine step, 1 to 64, for example 4; each costs GPU memory. 1 when left out."""
    max_rank: LoraRank | None = None
    """Highest rank of any adapter, one of 8, 16, 32, 64, 128, 256, 320 and 512; 16 when left out. A higher one costs
    GPU memory even when unused."""
    modules: Annotated[list[LoraModule], Field(max_length=64), *named()] = Field(default_factory=list)
    """Adapters that are loaded at start, up to 64, for example `[{name: chat-legal, id: org/llama-3.1-8b-legal-lora}]`;
    none when left out."""


class KvTransfer(Part):
    """How engines hand each other the KV cache of a prompt."""

    connector: Word
    """Connector in vLLM's words, up to 128 characters, for example `LMCacheConnectorV1`."""
    role: Literal["Producer", "Consumer", "Both"]
    """Whether the engines of this service give caches (Producer), take them (Consumer), or do both. For example
    Both."""
    load_failure_policy: Literal["Fail", "Recompute"] | None = None
    """What happens to a request whose cache cannot be loaded: Fail ends it, Recompute computes the prompt again. Fail
    when left out."""
    extra_config: Raw | None = None
    """Settings of the connector, up to 8 KiB and passed on as they are, for example `{local_cpu: true}`; none when left
    out."""


class EngineSettings(Part):
    """The inference engine."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.maxNumSeqs) || !has(self.maxNumBatchedTokens) || self.maxNumBatchedTokens >= self.maxNumSeqs",
            lambda engine: (
                engine.max_num_seqs is None
                or engine.max_num_batched_tokens is None
                or engine.max_num_batched_tokens >= engine.max_num_seqs
            ),
            "maxNumBatchedTokens must hold at least one token for each of maxNumSeqs requests: raise it or lower"
            " maxNumSeqs",
            ".maxNumBatchedTokens",
        ),
    )

    version: Annotated[str, Field(pattern=VERSION_PATTERN, max_length=32)] | None = None
    """Version of vLLM in the image, for example `0.33.0`, which it is when left out; what is checked depends on it."""
    image: Image | None = None
    """Image of the engine, up to 512 characters, for example `registry.example.com/vllm:0.33.0`; the operator's own for
    the version when left out. Another image may lack the runtime plugin, so it counts as ready by vLLM's own health
    alone, and its tokens may not be tunable."""
    image_pull_policy: PullPolicy | None = None
    """When the node pulls the image: Always, IfNotPresent or Never. The cluster's own rule when left out: Always for
    the tag latest, else IfNotPresent."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8), *unique()] = Field(default_factory=list)
    """Names of Secrets with credentials of registries, up to 8, for example `[registry]`; none when left out."""
    extra_args: Annotated[list[Argument], Field(max_length=64)] = Field(default_factory=list)
    """Further arguments of vLLM's API server, up to 64, one element each, for example `["--seed", "1"]`; not those that
    the operator sets itself. None when left out."""
    env: Annotated[list[EnvironmentVariable], Field(max_length=64), *named()] = Field(default_factory=list)
    """Further environment variables of the engine, up to 64, for example `[{name: VLLM_LOGGING_LEVEL, value: DEBUG}]`;
    none when left out."""
    max_num_seqs: Annotated[Int, Field(ge=1, le=4096)] | None = None
    """Most requests in one engine step, 1 to 4096, for example 128; 256 when left out."""
    max_num_batched_tokens: Annotated[Int, Field(ge=1, le=1_048_576)] | None = None
    """Most tokens in one engine step, 1 to 1048576 and not below maxNumSeqs, for example 16384; 8192 when left out, or
    more where the largest batch needs it."""
    gpu_memory_utilization_percent: Annotated[Int, Field(ge=1, le=99)] | None = None
    """Share of the GPU memory that the engine may take, in percent, 1 to 99, for example 88; the engine's own rule when
    left out."""
    prefix_caching: Bool | None = None
    """Whether the KV cache of equal beginnings is kept between requests; the engine's own rule for the model when left
    out."""
    chunked_prefill: Bool | None = None
    """Whether long prompts are computed in pieces between the steps of other requests; the engine's own rule for the
    model when left out."""
    lora: Lora | None = None
    """Adapters on top of the model, for example `{maxAdapters: 4, maxRank: 16}`; none when left out."""
    structured_output_backend: StructuredOutputBackend | None = None
    """What keeps answers to a schema: auto, xgrammar, guidance, outlines or lm-format-enforcer. auto, which picks one
    for each request, when left out."""
    max_queued_requests: Annotated[Int, Field(ge=1, le=1_000_000)] | None = None
    """Most requests, running and waiting, that one replica takes before it answers 503, 1 to 1000000, for example 512;
    no limit when left out. Keep it above maxNumSeqs, or the batch never fills."""
    max_queued_tokens: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """Most prompt tokens not yet computed that one replica takes before it answers 503, 1 to 1000000000, for example
    200000; no limit when left out."""
    kv_transfer: KvTransfer | None = None
    """How engines hand each other the KV cache of a prompt, for example `{connector: LMCacheConnectorV1, role: Both}`;
    they do not when left out."""
