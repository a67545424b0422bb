"""The objects that a resource names, each with the field that names it."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.api.model import Source
from outrider.cli.preflight_outcome import Subject


def secrets(subject: Subject) -> Iterator[tuple[str, str, str | None]]:
    """Field, name and key of each Secret; of some the key does not matter."""
    spec = subject.resource.spec
    if spec.model.token_secret is not None:
        yield "spec.model.tokenSecret", spec.model.token_secret.name, spec.model.token_secret.key
    for variable in spec.engine.env:
        if variable.secret is not None:
            yield "spec.engine.env", variable.secret.name, variable.secret.key
    for name in spec.engine.image_pull_secrets:
        yield "spec.engine.imagePullSecrets", name, None
    for path, source in _sources(subject):
        bucket = source.object_store
        if bucket is not None and bucket.credentials_secret is not None:
            yield f"{path}.objectStore.credentialsSecret", bucket.credentials_secret, None


def claims(subject: Subject) -> Iterator[tuple[str, str]]:
    """Field and name of each PersistentVolumeClaim."""
    spec = subject.resource.spec
    storage = spec.storage
    for path, source in _sources(subject):
        if source.volume is not None:
            yield f"{path}.volume.claimName", source.volume.claim_name
    if storage.model_cache is not None and storage.model_cache.claim_name is not None:
        yield "spec.storage.modelCache.claimName", storage.model_cache.claim_name
    if storage.compile_cache is not None:
        yield "spec.storage.compileCache.claimName", storage.compile_cache.claim_name


def _sources(subject: Subject) -> Iterator[tuple[str, Source]]:
    """Where model and drafter come from, when the resource says so; without speculation no drafter is loaded."""
    spec = subject.resource.spec
    if spec.model.source is not None:
        yield "spec.model.source", spec.model.source
    draft = spec.speculation.draft if subject.config.speculates else None
    if draft is not None and draft.source is not None:
        yield "spec.speculation.draft.source", draft.source
