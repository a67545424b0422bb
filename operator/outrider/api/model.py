"""The part of the spec that says which model is served, and where weights come from."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import (
    Address,
    Image,
    Int,
    ModelId,
    ObjectName,
    Path,
    PullPolicy,
    Revision,
    SecretKey,
    Text,
    Word,
)
from outrider.api.rules import Part, Rule, judged, matching, refusing

MAX_CONTEXT = 16_777_216  # no model comes near it; without a bound a slip of the keyboard would reach the engine
SourceKind = Literal["hub", "volume", "image", "object_store"]

Bucket = Annotated[
    Text,
    *judged(
        refusing(" ", "the uri holds no blanks: write %20 for each, or remove it"),
        matching(
            r"^(s3|gs)://[a-z0-9][a-z0-9._-]*(/.*)?$",
            "the uri must begin with s3:// or gs:// and the name of a bucket, for example s3://models/llama-3.1-8b",
        ),
    ),
]


class HubSource(Part):
    """A hub of model repositories; the engine downloads from it when a pod starts."""

    endpoint: Address | None = None
    """Address of a mirror of the hub, https only and without credentials, for example `https://hub.example.com`; an
    engine has one, so model and drafter share it. The public hub when left out."""


class VolumeSource(Part):
    """A PersistentVolumeClaim in the namespace of the service, mounted read-only."""

    claim_name: ObjectName
    """Name of the claim, for example `models`; with more than one replica it must be readable by many nodes."""
    path: Path | None = None
    """Folder of the weights inside the volume, relative and without `..`, for example `llama-3.1-8b`; the volume's
    root when left out."""


class ImageSource(Part):
    """An OCI image that holds the weights, mounted read-only as an image volume."""

    reference: Image
    """Reference of the image, up to 512 characters, for example `registry.example.com/models/llama-3.1-8b:1`; pin it by
    digest, so that two pods serve the same weights."""
    path: Path | None = None
    """Folder of the weights inside the image, relative and without `..`, for example `model`; the image's root when
    left out."""
    pull_policy: PullPolicy | None = None
    """When the node pulls the image: Always, IfNotPresent or Never. The cluster's own rule when left out: Always for
    the tag latest, else IfNotPresent."""


class ObjectStoreSource(Part):
    """A bucket; an init container copies the weights into the model cache before the engine starts."""

    uri: Bucket
    """Bucket and prefix of the weights, s3:// or gs://, for example `s3://models/llama-3.1-8b`."""
    credentials_secret: ObjectName | None = None
    """Name of a Secret whose keys become the environment of the download, such as AWS_ACCESS_KEY_ID, for example
    `models-reader`. The download runs without credentials when left out."""
    endpoint: Address | None = None
    """Address of a store that speaks the same protocol, https only and without credentials, for example
    `https://minio.example.com`; the provider's own when left out."""
    image: Image | None = None
    """Image with rclone that copies, for example `registry.example.com/rclone:1.70`; the operator's own when left
    out."""


class Source(Part):
    """Where weights come from: exactly one of hub, volume, image and objectStore."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.hub), has(self.volume), has(self.image), has(self.objectStore)].exists_one(given, given)",
            lambda source: (
                [source.hub, source.volume, source.image, source.object_store].count(None) == 3  # all but one
            ),
            "give source exactly one of hub, volume, image and objectStore; to use the public hub leave source out",
        ),
    )

    hub: HubSource | None = None
    """A hub of model repositories, for example `{endpoint: https://hub.example.com}`; its repository is the id.
    One of the four."""
    volume: VolumeSource | None = None
    """A PersistentVolumeClaim, for example `{claimName: models, path: llama-3.1-8b}`. One of the four."""
    image: ImageSource | None = None
    """An OCI image, for example `{reference: registry.example.com/models/llama-3.1-8b:1}`. One of the four."""
    object_store: ObjectStoreSource | None = None
    """A bucket, for example `{uri: s3://models/llama-3.1-8b, credentialsSecret: models-reader}`. One of the
    four."""

    @property
    def kind(self) -> SourceKind:
        """Which of the four it is."""
        if self.volume is not None:
            return "volume"
        if self.image is not None:
            return "image"
        return "hub" if self.object_store is None else "object_store"


class Model(Part):
    """The model that is served."""

    id: ModelId
    """Repository of the model, or a path inside the container, for example `meta-llama/Llama-3.1-8B-Instruct`, up to
    512 characters and no address. Beside a source other than the hub it names the model only."""
    revision: Revision | None = None
    """Commit, tag or branch of the repository, for example `4f1c2d9`; pin it, so that a pod that starts tomorrow serves
    the same weights. The repository's main branch when left out."""
    source: Source | None = None
    """Where the weights come from: hub, volume, image or objectStore. The public hub, or the path in id, when left
    out."""
    served_name: Text | None = None
    """Name that clients ask for, up to 512 characters, for example `chat`; the model's id when left out."""
    quantization: Word | None = None
    """Quantisation method in vLLM's words, for example `fp8`; what the model's own files say when left out."""
    kv_cache_dtype: Word | None = None
    """Data type of the KV cache in vLLM's words, for example `fp8`; the model's own when left out."""
    max_length: Annotated[Int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    """Longest context, prompt and answer together, in tokens, 1 to 16777216, for example 32768; the model's own when
    left out. A shorter one leaves room for more requests in the KV cache."""
    token_secret: SecretKey | None = None
    """Secret key with the token of a gated repository, for example `{name: hub-token, key: token}`; the hub is asked
    without a token when left out."""
