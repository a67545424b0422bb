"""Where the weights of model and drafter come from: a hub, a claim, an image, or a bucket that is copied first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from outrider.api.model import ObjectStoreSource, Source
from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import CACHE_PATH, TMP_PATH, escape
from outrider.errors import InvalidSpec
from outrider.manifests import storage
from outrider.manifests.meta import Manifest
from outrider.manifests.volumes import Mount, claim

MODEL, DRAFT = "model", "draft"
MOUNTS = {MODEL: "/mnt/model", DRAFT: "/mnt/draft"}
DOWNLOADS = {MODEL: "download", DRAFT: "download-draft"}
"""Names of the init containers that copy from buckets."""
RCLONE_IMAGE = "docker.io/rclone/rclone:1.71.0"
"""Part of the pod template of services that copy from a bucket: a change restarts them all."""
_BACKENDS = {"s3": "s3", "gs": "google cloud storage"}  # rclone's names
_REMOTE = "source"


def model_path(resource: SpeculativeInferenceService) -> str | None:
    """The folder in which the engine finds the model; None where it looks the model up by its id."""
    return _path(resource, MODEL, resource.spec.model.source)


def draft_path(resource: SpeculativeInferenceService) -> str | None:
    """The same for the drafter."""
    draft = resource.spec.speculation.draft
    return None if draft is None else _path(resource, DRAFT, draft.source)


def _path(resource: SpeculativeInferenceService, role: str, source: Source | None) -> str | None:
    if source is None or source.kind == "hub":
        return None
    if source.object_store is not None:
        return _destination(resource, source.object_store)
    local = source.volume or source.image
    assert local is not None
    return MOUNTS[role] if local.path is None else f"{MOUNTS[role]}/{local.path}"


def _destination(resource: SpeculativeInferenceService, store: ObjectStoreSource) -> str:
    """A folder for each bucket and prefix, so that a claim may serve many services, and two of one model share it."""
    key = hashlib.sha256(f"{store.endpoint or ''}\n{store.uri}".encode()).hexdigest()[:16]
    return f"{storage.downloads_path(resource)}/{key}"


def _sources(resource: SpeculativeInferenceService) -> Iterator[tuple[str, Source]]:
    """Sources that the resource names, of what the engine loads: one without speculation loads no drafter."""
    spec = resource.spec
    if spec.model.source is not None:
        yield MODEL, spec.model.source
    if _loads_drafter(resource) and spec.speculation.draft is not None and spec.speculation.draft.source is not None:
        yield DRAFT, spec.speculation.draft.source


def _loads_drafter(resource: SpeculativeInferenceService) -> bool:
    return resource.spec.speculation.tuning.mode != "Off"


def mounts(resource: SpeculativeInferenceService) -> list[Mount]:
    """Weights that need no copying."""
    found = []
    for role, source in _sources(resource):
        if source.volume is not None:
            found.append(Mount(role, claim(source.volume.claim_name), MOUNTS[role], read_only=True))
        if source.image is not None:
            policy = {} if source.image.pull_policy is None else {"pullPolicy": source.image.pull_policy}
            volume = {"image": {"reference": source.image.reference} | policy}
            found.append(Mount(role, volume, MOUNTS[role], read_only=True))
    return found


def variables(resource: SpeculativeInferenceService) -> dict[str, str]:
    """What the engine's environment says about the hub.

    Raises:
        InvalidSpec: its address is set in two places.
    """
    hubs = [source.hub for _, source in _sources(resource) if source.hub is not None]
    own = {variable.name for variable in resource.spec.engine.env}
    # Where both name a hub they name the same one: a rule of the resource.
    endpoint = next((hub.endpoint for hub in hubs if hub.endpoint is not None), None)
    found = {} if endpoint is None else {"HF_ENDPOINT": endpoint}
    if found and "HF_ENDPOINT" in own:
        message = "spec.engine.env: HF_ENDPOINT is set from source.hub.endpoint; remove it in one of the two places"
        raise InvalidSpec("VariableRefused", message)
    if _all_local(resource) and "HF_HUB_OFFLINE" not in own:
        # Weights are there whole: a look-up at every start would only make the hub one more thing that can be away.
        found["HF_HUB_OFFLINE"] = "1"
    return found


def _all_local(resource: SpeculativeInferenceService) -> bool:
    """Whether the resource says of all weights that they need no hub, with a source for one of them at least."""
    spec = resource.spec
    loaded = [(spec.model.source, spec.model.id)]
    if spec.speculation.draft is not None and _loads_drafter(resource):
        loaded.append((spec.speculation.draft.source, spec.speculation.draft.id))
    if spec.engine.lora is not None:
        loaded += [(None, module.id) for module in spec.engine.lora.modules]
    given = any(source is not None for source, _ in loaded)
    return given and all(
        identifier.startswith("/") if source is None else source.kind != "hub" for source, identifier in loaded
    )


def downloads(resource: SpeculativeInferenceService) -> list[Manifest]:
    """Init containers that copy weights from buckets; what is there already is not copied again."""
    return [
        _download(resource, DOWNLOADS[role], source.object_store)
        for role, source in _sources(resource)
        if source.object_store is not None
    ]


def _download(resource: SpeculativeInferenceService, name: str, store: ObjectStoreSource) -> Manifest:
    scheme, _, place = store.uri.partition("://")
    cache = storage.model_cache(resource)
    container: Manifest = {
        "name": name,
        "image": store.image or RCLONE_IMAGE,
        # Named outright: an image of the user's own may start something else.
        "command": ["rclone"],
        "args": [
            *("copy", escape(f"{_REMOTE}:{place}"), _destination(resource, store)),
            *("--transfers", "8", "--stats", "30s", "--stats-one-line", "--stats-log-level", "NOTICE"),
        ],
        "env": [{"name": name, "value": escape(value)} for name, value in _remote(scheme, store).items()],
        "volumeMounts": [
            {"name": cache.name, "mountPath": cache.path}
            if cache is not None
            else {"name": "cache", "mountPath": CACHE_PATH},
            {"name": "tmp", "mountPath": TMP_PATH},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if store.credentials_secret is not None:
        container["envFrom"] = [{"secretRef": {"name": store.credentials_secret, "optional": False}}]
    return container


def _remote(scheme: str, store: ObjectStoreSource) -> dict[str, str]:
    """The bucket's store as rclone takes it from the environment (rclone's documentation, "Environment Variables")."""
    backend = _BACKENDS[scheme]
    found = {"TYPE": backend}
    if backend == "s3":
        found["PROVIDER"] = "AWS" if store.endpoint is None else "Other"
    if store.credentials_secret is not None:
        found["ENV_AUTH"] = "true"  # of the Secret, whose keys are the environment
    elif backend != "s3":
        found["ANONYMOUS"] = "true"
    if store.endpoint is not None:
        found["ENDPOINT"] = store.endpoint
    variables = {f"RCLONE_CONFIG_{_REMOTE.upper()}_{name}": value for name, value in found.items()}
    return variables | {"RCLONE_CONFIG": "/dev/null", "HOME": TMP_PATH}  # no file: it would have nowhere to lie
