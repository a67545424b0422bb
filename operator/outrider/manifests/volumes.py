"""What is mounted into an engine's pod beyond the folders that every engine has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.manifests.meta import Manifest


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume, and where the engine finds it."""

    name: str
    volume: Manifest
    """What it is: a pod's volume without its name."""
    path: str
    read_only: bool = False


def claim(name: str) -> Manifest:
    """A PersistentVolumeClaim as a volume."""
    return {"persistentVolumeClaim": {"claimName": name}}


def volumes(mounts: Sequence[Mount]) -> list[Manifest]:
    """The pod's volumes.

    A claim is one volume however often it is mounted: kubelets have waited for ever for a second volume of one claim
    (kubernetes/kubernetes#28502).
    """
    return [{"name": mount.name} | _volume(mount, mounts) for mount in mounts if _name(mount, mounts) == mount.name]


def volume_mounts(mounts: Sequence[Mount]) -> list[Manifest]:
    """The engine's mounts, in the order given."""
    return [
        {"name": _name(mount, mounts), "mountPath": mount.path} | ({"readOnly": True} if mount.read_only else {})
        for mount in mounts
    ]


def _name(mount: Mount, mounts: Sequence[Mount]) -> str:
    return next(other.name for other in mounts if other is mount or _one_claim(other, mount))


def _volume(mount: Mount, mounts: Sequence[Mount]) -> Manifest:
    source = mount.volume.get("persistentVolumeClaim")
    if source is None or not all(other.read_only for other in mounts if other is mount or _one_claim(other, mount)):
        return mount.volume
    # Some drivers attach a volume to several nodes only when the volume itself says so, too.
    return {"persistentVolumeClaim": source | {"readOnly": True}}


def _one_claim(one: Mount, other: Mount) -> bool:
    return "persistentVolumeClaim" in one.volume and one.volume == other.volume
