"""``outrider support-bundle``: what is in it, and what must not be."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path

import yaml

from outrider.cli.bundle import APPLIED, redacted
from outrider.reconcile.redaction import MASK
from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import FakeCluster, busy, service

TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqR"
PLAIN = "correct horse battery staple"
CHILDREN = "/api/v1/namespaces/ml/{}"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ml/deployments"


def cluster() -> FakeCluster:
    """One whose objects, logs and events are full of secrets."""
    found = busy(FakeCluster(service(changes={"spec.engine": {"env": [{"name": "LICENCE", "value": PLAIN}]}})))
    container = {
        "name": "engine",
        "env": [{"name": "LICENCE", "value": PLAIN}, {"name": "OUTRIDER_ADMIN_PORT", "value": "8001"}],
        "args": ["serve", "--api-key", TOKEN, "--max-num-seqs", "256"],
    }
    pod = {
        "metadata": {
            "name": "chat-1",
            "annotations": {APPLIED: PLAIN, "note": f"token={TOKEN}"},
            "managedFields": [{}],
        },
        "spec": {"containers": [container]},
        "status": {"containerStatuses": [{"name": "engine", "restartCount": 1}]},
    }
    template = {"metadata": {"name": "chat"}, "spec": {"template": {"spec": {"containers": [container]}}}}
    found.objects[CHILDREN.format("pods")] = {"items": [pod]}
    found.objects[DEPLOYMENTS] = {"items": [template]}
    found.objects[CHILDREN.format("events")] = {"items": [{"message": f"Authorization: Bearer {TOKEN}"}]}
    found.objects["/version"] = {"gitVersion": "v1.37.0"}
    found.texts[CHILDREN.format("pods/chat-1/log")] = f"loading\nhttps://user:{TOKEN}@huggingface.co failed\n"
    return found


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            member.name.split("/", 1)[1]: (archive.extractfile(member) or open("/dev/null", "rb")).read().decode()
            for member in archive.getmembers()
        }


def test_it_holds_what_helps_and_lists_it(ask: Ask, tmp_path: Path) -> None:
    result = ask(cluster(), "support-bundle", "chat", "--prometheus", "STORE", "--file", "b.tar.gz")
    assert result.exit_code == 0, result.output
    files = read(tmp_path / "b.tar.gz")
    assert {
        "CONTENTS.txt",
        "versions.json",
        "ml/chat/resource.yaml",
        "ml/chat/deployment.yaml",
        "ml/chat/pod.yaml",
        "ml/chat/logs/chat-1-engine.log",
        "ml/chat/logs/chat-1-engine-before-restart.log",
        "ml/events.yaml",
        "metrics/engines.txt",
    } <= set(files)
    assert all(name in files["CONTENTS.txt"] for name in files if name != "CONTENTS.txt")
    assert files["CONTENTS.txt"].splitlines()[2:] == result.stdout.splitlines()[2:-2]
    assert "no Deployment in the cluster has the label app.kubernetes.io/name=outrider" in files["CONTENTS.txt"]
    assert '"kubernetes": "v1.37.0"' in files["versions.json"]
    assert stat.S_IMODE((tmp_path / "b.tar.gz").stat().st_mode) == 0o600


def test_no_secret_is_anywhere_in_it(ask: Ask, tmp_path: Path) -> None:
    played = cluster()
    ask(played, "support-bundle", "--prometheus", "STORE", "--file", "b.tar.gz")
    everything = "\n".join(read(tmp_path / "b.tar.gz").values())
    assert TOKEN not in everything
    assert PLAIN not in everything
    assert not [path for path in played.seen if "/secrets" in path]
    assert "--max-num-seqs" in everything
    assert "8001" in everything, "settings of ours are kept"
    assert "loading" in everything


def test_what_may_not_be_read_is_named_and_the_rest_gathered(ask: Ask, tmp_path: Path) -> None:
    played = cluster()
    played.refused[CHILDREN.format("pods")] = 403
    played.refused["/apis/apps/v1/deployments"] = 403
    result = ask(played, "support-bundle", "--file", "b.tar.gz", "-o", "yaml")
    assert result.exit_code == 0, result.output
    document = yaml.safe_load(result.stdout)
    assert any(one.startswith("Pod of ml/chat") and "told so" in one for one in document["missing"])
    assert any(one.startswith("the operator's Deployment and log") for one in document["missing"])
    assert any(one.startswith("metrics: no metrics store is known") for one in document["missing"])
    assert "ml/chat/deployment.yaml" in [one["name"] for one in document["contents"]]


def test_data_of_a_secret_is_masked_by_its_kind() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "hub"}, "data": {"token": "eA=="}, "stringData": {"a": "b"}}
    assert redacted(secret)["data"] == {"token": MASK}
    assert redacted(secret)["stringData"] == {"a": MASK}


def test_an_archive_that_cannot_be_written_names_the_option(ask: Ask) -> None:
    result = ask(cluster(), "support-bundle", "--file", "/no/such/b.tar.gz")
    assert result.exit_code == 2
    assert "--file /no/such/b.tar.gz: cannot be written" in result.stderr
