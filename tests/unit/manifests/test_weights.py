"""Where weights come from, and the folders that outlive a pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.errors import InvalidSpec
from tests.unit.engine.kubernetes_expansion import expand
from tests.unit.manifests.builders import made

VOLUME = {"volume": {"claimName": "models", "path": "a/b"}}
IMAGE = {"image": {"reference": "registry.example.com/w:1"}}
BUCKET = {"objectStore": {"uri": "s3://models/llama"}}
HUB = {"hub": {"endpoint": "https://hub.example.com"}}
MODEL, DRAFT = "spec.model.source", "spec.speculation.draft.source"


def pod(changes: dict[str, Any]) -> dict[str, Any]:
    """The pod's spec of the minimal example with changes."""
    spec: dict[str, Any] = made(changes)["Deployment"]["spec"]["template"]["spec"]
    return spec


def engine(changes: dict[str, Any]) -> dict[str, Any]:
    """Its engine."""
    container: dict[str, Any] = pod(changes)["containers"][0]
    return container


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Variables of a container that are not from a Secret."""
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def loaded(changes: dict[str, Any]) -> tuple[str, str]:
    """What the engine loads: model and drafter."""
    arguments = engine(changes)["args"]
    document = json.loads(arguments[arguments.index("--speculative-config") + 1])
    return arguments[arguments.index("--model") + 1], document["model"]


def mounts(container: dict[str, Any]) -> dict[str, str]:
    """Volumes of a container by the place where it finds them."""
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def volumes(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod's volumes by name."""
    return {one.pop("name"): one for one in pod(changes)["volumes"]}


def test_a_claim_is_mounted_for_reading_and_its_folder_loaded() -> None:
    changes = {MODEL: VOLUME, "spec.model.revision": "main"}
    assert loaded(changes)[0] == "/mnt/model/a/b"
    assert volumes(changes)["model"] == {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    assert {"name": "model", "mountPath": "/mnt/model", "readOnly": True} in engine(changes)["volumeMounts"]
    arguments = engine(changes)["args"]
    assert "--revision" not in arguments
    assert arguments[arguments.index("--served-model-name") + 1] == "chat", "clients ask for the same name"


def test_an_image_is_mounted_as_a_volume() -> None:
    changes = {DRAFT: {"image": {**IMAGE["image"], "pullPolicy": "Always"}}}
    assert loaded(changes)[1] == "/mnt/draft"
    assert volumes(changes)["draft"] == {"image": {"reference": "registry.example.com/w:1", "pullPolicy": "Always"}}
    assert volumes({DRAFT: IMAGE})["draft"] == {"image": {"reference": "registry.example.com/w:1"}}


def test_model_and_drafter_on_one_claim_share_its_volume() -> None:
    changes = {MODEL: VOLUME, DRAFT: {"volume": {"claimName": "models", "path": "c"}}}
    assert loaded(changes) == ("/mnt/model/a/b", "/mnt/draft/c")
    assert [name for name, one in volumes(changes).items() if "persistentVolumeClaim" in one] == ["model"]
    assert (mounts(engine(changes))["/mnt/model"], mounts(engine(changes))["/mnt/draft"]) == ("model", "model")


def test_a_claim_that_is_also_a_cache_is_not_attached_for_reading_alone() -> None:
    changes = {MODEL: VOLUME, "spec.storage": {"modelCache": {"claimName": "models"}}}
    assert volumes(changes)["model"] == {"persistentVolumeClaim": {"claimName": "models"}}
    found = [mount for mount in engine(changes)["volumeMounts"] if mount["name"] == "model"]
    assert found == [
        {"name": "model", "mountPath": "/mnt/model", "readOnly": True},
        {"name": "model", "mountPath": "/var/cache/models"},
    ]


def test_a_bucket_is_copied_before_the_engine_starts_into_the_folder_that_it_loads() -> None:
    changes = {MODEL: BUCKET, DRAFT: {"objectStore": {"uri": "gs://drafts/d"}}}
    first, second = pod(changes)["initContainers"]
    assert (first["name"], second["name"]) == ("download", "download-draft")
    assert first["command"] == ["rclone"]
    assert first["args"][:3] == ["copy", "source:models/llama", loaded(changes)[0]]
    assert second["args"][:3] == ["copy", "source:drafts/d", loaded(changes)[1]]
    for copying, path in zip((first, second), loaded(changes), strict=True):
        assert path.startswith("/var/cache/engine/models/")
        assert mounts(copying)["/var/cache/engine"] == mounts(engine(changes))["/var/cache/engine"] == "cache"
        assert copying["securityContext"] == engine(changes)["securityContext"]


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param({"uri": "s3://b/p"}, {"TYPE": "s3", "PROVIDER": "AWS"}, id="a public bucket"),
        pytest.param(
            {"uri": "s3://b/p", "credentialsSecret": "reader", "endpoint": "https://minio.example.com"},
            {"TYPE": "s3", "PROVIDER": "Other", "ENV_AUTH": "true", "ENDPOINT": "https://minio.example.com"},
            id="another store, with a key",
        ),
        pytest.param({"uri": "gs://b"}, {"TYPE": "google cloud storage", "ANONYMOUS": "true"}, id="another protocol"),
        pytest.param(
            {"uri": "gs://b", "credentialsSecret": "reader"},
            {"TYPE": "google cloud storage", "ENV_AUTH": "true"},
            id="another protocol, with a key",
        ),
    ],
)
def test_the_store_is_told_to_the_copy_by_its_environment(store: dict[str, str], expected: dict[str, str]) -> None:
    (copying,) = pod({MODEL: {"objectStore": store}})["initContainers"]
    prefix = "RCLONE_CONFIG_SOURCE_"
    found = {key.removeprefix(prefix): value for key, value in environment(copying).items() if key.startswith(prefix)}
    assert found == expected
    secrets = [{"secretRef": {"name": "reader", "optional": False}}] if "credentialsSecret" in store else None
    assert copying.get("envFrom") == secrets
    assert "envFrom" not in engine({MODEL: {"objectStore": store}}), "the engine never sees the key"


def test_a_copy_is_bounded_as_the_engine_is_and_takes_no_gpu() -> None:
    changes = {MODEL: BUCKET, "spec.resources": {"gpus": 1, "cpu": 8, "memory": "64Gi"}}
    assert pod(changes)["initContainers"][0]["resources"] == {
        "requests": {"memory": "64Gi", "cpu": "8"},
        "limits": {"memory": "64Gi"},
    }


def test_what_kubernetes_would_expand_in_a_bucket_arrives_as_it_was_written() -> None:
    (copying,) = pod({MODEL: {"objectStore": {"uri": "s3://b/$(HOME)/x"}}})["initContainers"]
    assert expand(copying["args"][1], {"HOME": "/tmp"}) == "source:b/$(HOME)/x"


def test_each_bucket_and_prefix_has_its_folder() -> None:
    stores = [{"uri": "s3://b/p"}, {"uri": "s3://b/q"}, {"uri": "s3://b/p", "endpoint": "https://minio.example.com"}]
    places = [loaded({MODEL: {"objectStore": store}})[0] for store in stores]
    assert len(set(places)) == len(places)
    again = loaded({MODEL: {"objectStore": {**stores[0], "credentialsSecret": "other"}}})[0]
    assert again == places[0], "the key is no part of it"


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        pytest.param({"claimName": "weights"}, {"persistentVolumeClaim": {"claimName": "weights"}}, id="a claim"),
        pytest.param({"sizeLimit": "200Gi"}, {"emptyDir": {"sizeLimit": "200Gi"}}, id="bounded space of the node"),
    ],
)
def test_downloads_go_into_the_model_cache(cache: dict[str, str], volume: dict[str, Any]) -> None:
    changes = {DRAFT: BUCKET, "spec.storage": {"modelCache": cache}}
    assert volumes(changes)["model-cache"] == volume
    assert environment(engine(changes))["HF_HOME"] == "/var/cache/models/huggingface"
    (copying,) = pod(changes)["initContainers"]
    assert copying["args"][2] == loaded(changes)[1]
    assert copying["args"][2].startswith("/var/cache/models/")
    assert mounts(copying)["/var/cache/models"] == mounts(engine(changes))["/var/cache/models"] == "model-cache"


def test_compiled_kernels_are_kept_apart_by_image_and_gpus() -> None:
    def place(changes: dict[str, Any]) -> str:
        kept = {"spec.storage": {"compileCache": {"claimName": "kernels"}}, "spec.resources": None}
        found = environment(engine(kept | changes))
        folders = {found[name].rsplit("/", 1)[0] for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")}
        folders.add(found["TORCHINDUCTOR_CACHE_DIR"].rsplit("/", 1)[0])
        (folder,) = folders
        return folder

    plain = place({})
    assert plain.startswith("/var/cache/compile/")
    assert place({"spec.model.revision": "v2"}) == plain
    others = [
        place({"spec.parallelism": {"tensor": 2}}),
        place({"spec.parallelism": {"pipeline": 2}}),
        place({"spec.engine": {"image": "x:1"}}),
    ]
    assert len({plain, *others}) == 4
    claim = {"spec.storage": {"compileCache": {"claimName": "kernels"}}}
    assert volumes(claim)["compile-cache"] == {"persistentVolumeClaim": {"claimName": "kernels"}}
    assert environment(engine(claim))["HF_HOME"] == "/var/cache/engine/huggingface"


@pytest.mark.parametrize(
    ("changes", "offline"),
    [
        pytest.param({MODEL: VOLUME, DRAFT: IMAGE}, True, id="both at hand"),
        pytest.param({MODEL: BUCKET, DRAFT: BUCKET}, True, id="both copied"),
        pytest.param({MODEL: VOLUME, "spec.speculation.draft.id": "/opt/draft"}, True, id="the drafter in the image"),
        pytest.param({MODEL: VOLUME, DRAFT: HUB}, False, id="the drafter from a hub"),
        pytest.param({MODEL: VOLUME}, False, id="the drafter from the usual hub"),
        pytest.param({DRAFT: VOLUME}, False, id="the model from the usual hub"),
        pytest.param(
            {MODEL: VOLUME, "spec.speculation.method": "ngram", "spec.speculation.draft": None}, True, id="no drafter"
        ),
        pytest.param({MODEL: VOLUME, "spec.speculation.tuning": {"mode": "Off"}}, True, id="no speculation"),
        pytest.param(
            {
                MODEL: VOLUME,
                DRAFT: IMAGE,
                "spec.engine": {"lora": {"modules": [{"name": "a", "id": "org/adapter"}]}},
            },
            False,
            id="an adapter from the hub",
        ),
        pytest.param(
            {
                MODEL: VOLUME,
                DRAFT: IMAGE,
                "spec.engine": {"lora": {"modules": [{"name": "a", "id": "/mnt/model/adapter"}]}},
            },
            True,
            id="an adapter at hand",
        ),
        pytest.param(
            {"spec.model.id": "/opt/model", "spec.speculation.draft.id": "/opt/draft"}, False, id="paths as they were"
        ),
    ],
)
def test_the_hub_is_not_asked_when_all_weights_are_at_hand(changes: dict[str, Any], offline: bool) -> None:
    assert environment(engine(changes)).get("HF_HUB_OFFLINE") == ("1" if offline else None)


def test_a_user_who_says_something_about_the_hub_has_the_last_word() -> None:
    env = {"spec.engine": {"env": [{"name": "HF_HUB_OFFLINE", "value": "0"}]}}
    found = [one for one in engine({MODEL: VOLUME, DRAFT: IMAGE, **env})["env"] if one["name"] == "HF_HUB_OFFLINE"]
    assert found == [{"name": "HF_HUB_OFFLINE", "value": "0"}]


def test_a_mirror_of_the_hub_is_named_once() -> None:
    assert environment(engine({MODEL: HUB}))["HF_ENDPOINT"] == "https://hub.example.com"
    assert "HF_ENDPOINT" not in environment(engine({MODEL: {"hub": {}}}))
    own = [{"name": "HF_ENDPOINT", "value": "https://other.example.com"}]
    assert environment(engine({"spec.engine": {"env": own}}))["HF_ENDPOINT"] == "https://other.example.com"
    with pytest.raises(InvalidSpec, match=r"HF_ENDPOINT is set from source\.hub\.endpoint"):
        engine({MODEL: HUB, "spec.engine": {"env": own}})


def test_an_engine_without_speculation_needs_no_weights_of_a_drafter() -> None:
    off = {"spec.speculation.tuning": {"mode": "Off"}}
    assert "initContainers" not in pod({DRAFT: BUCKET, **off})
    assert "draft" not in volumes({DRAFT: IMAGE, **off})
