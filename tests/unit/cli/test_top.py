"""``outrider top``: rows, sorting, sizes, and how one leaves."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from outrider.cli.measured import Now
from outrider.cli.seen import see
from outrider.cli.top_screen import LEGEND, SORTS, Row, picture
from outrider.core.histogram import Histogram
from tests import interrupts
from tests.unit.cli.conftest import Ask
from tests.unit.cli.fake_cluster import CANDIDATE, CONDITIONS, FakeCluster, busy, service, serving

SLOW = Histogram(count=10, buckets=((0.03, 4), (0.05, 10), (float("inf"), 10)))
FAST = Histogram(count=10, buckets=((0.01, 10), (float("inf"), 10)))


def rows() -> list[Row]:
    return [
        Row(see(service("a")), Now(in_flight=3, tokens_per_second=900, tpot=FAST)),
        Row(see(service("b")), Now(in_flight=40, tokens_per_second=100, tpot=SLOW)),
        Row(see(service("c"))),
    ]


def drawn(width: int, height: int = 20) -> list[str]:
    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(picture(rows(), width=width, height=height, title="now", notes=["the store is away"]))
    return console.export_text().splitlines()


def test_once_it_shows_a_row_a_service(ask: Ask) -> None:
    result = ask(busy(FakeCluster(service(), service("code"))), "top", "--once", "--prometheus", "STORE")
    assert result.exit_code == 0, result.output
    chat = next(line for line in result.stdout.splitlines() if line.startswith("ml/chat"))
    assert chat.split() == ["ml/chat", "3", "2.41", "43", "3/3", "20", "45.0/40", "p95", "812", "Ready"]
    code = next(line for line in result.stdout.splitlines() if line.startswith("ml/code"))
    assert code.split()[3] == "–", "of this one the store knows nothing"


def test_a_store_that_is_away_leaves_dashes_and_a_sentence(ask: Ask) -> None:
    result = ask(FakeCluster(service()), "top", "--once", "--prometheus", "http://127.0.0.1:9")
    assert result.exit_code == 0
    assert "no connection, nothing listens there: look at --prometheus\n" in result.stdout
    assert "ml/chat  3" in result.stdout


def test_an_address_from_the_environment_is_told_by_its_variable(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_PROMETHEUS_URL", "http://no-such-host.invalid:9090")
    result = ask(FakeCluster(service()), "top", "--once")
    assert "look at OUTRIDER_PROMETHEUS_URL\n" in result.stdout


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://prometheus.nowhere.svc:9090"])
def test_an_address_that_keda_was_told_names_the_scaled_object_and_the_option(ask: Ask, address: str) -> None:
    """Directly, and through the API server, which has no such Service."""
    told = FakeCluster(service())
    told.objects["/apis/keda.sh/v1alpha1/namespaces/ml/scaledobjects/chat"] = {
        "spec": {"triggers": [{"metadata": {"serverAddress": address}}]}
    }
    told.away = "/namespaces/nowhere/"
    result = ask(told, "top", "--once")
    assert "look at serverAddress of the ScaledObject, or name the store with --prometheus\n" in result.stdout


def test_a_server_that_is_no_prometheus_is_told_so(ask: Ask) -> None:
    page = FakeCluster(service())
    page.texts["/grafana/api/v1/query"] = "<html>"
    result = ask(page, "top", "--once", "--prometheus", "STORE/grafana")
    assert "with series; if it is none: look at --prometheus" in " ".join(result.stdout.split())


def test_the_document_has_the_same_numbers(ask: Ask) -> None:
    result = ask(busy(FakeCluster(service())), "top", "-o", "json", "--prometheus", "STORE")
    (one,) = json.loads(result.stdout)["services"]
    assert (one["inFlight"], one["tokensPerSecond"], one["tpotMilliseconds"]) == (43, 812, 45)


def test_a_candidate_shows_in_the_state_and_with_its_figures_in_the_document(ask: Ask) -> None:
    compared = {"type": "RevisionCurrent", "status": "False", "reason": "CandidateCompared", "message": ""}
    told = FakeCluster(service(changes={"status.revisions": CANDIDATE, "status.conditions": [*CONDITIONS, compared]}))
    shown = ask(told, "top", "--once")
    assert "Ready, RevisionCurrent: CandidateCompared" in shown.stdout
    (one,) = json.loads(ask(told, "top", "-o", "json").stdout)["services"]
    assert one["revisions"] == CANDIDATE


@pytest.mark.parametrize(("sort", "first"), [("name", "a"), ("load", "b"), ("tokens", "a"), ("headroom", "b")])
def test_what_comes_first(sort: str, first: str) -> None:
    assert sorted(rows(), key=SORTS[sort])[0].seen.name == first


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_the_legend_explains_the_columns_that_are_shown(width: int) -> None:
    shown = " ".join(drawn(width, height=40))
    for column, text in LEGEND.items():
        is_there = width >= 78 or column not in ("TOKENS/STEP", "TARGET")
        assert (" ".join(text.split()) in " ".join(shown.split())) == is_there, column


@pytest.mark.parametrize("height", range(5, 20))
def test_the_legend_takes_no_service_its_place(height: int) -> None:
    lines = drawn(120, height)
    assert len(lines) <= height
    if any(line.startswith("K: ") for line in lines):
        assert any(line.startswith("ml/c") for line in lines)


def test_a_note_is_not_cut() -> None:
    console = Console(width=40, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    note = "Prometheus at http://prometheus.monitoring:9090: no connection: look at --prometheus"
    console.print(picture(rows(), width=40, height=30, title="now", notes=[note]))
    assert note in " ".join(console.export_text().split())


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_every_width_shows_name_state_and_nothing_beyond_the_edge(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("ml/a") for line in lines)
    assert ("TARGET" in "".join(lines)) == (width >= 78)


def test_services_that_have_no_place_are_counted() -> None:
    assert any("and 2 more" in line for line in drawn(100, height=6))


def test_on_a_terminal_it_lives_until_q_or_ctrl_c(tmp_path: Path) -> None:
    """In a pseudo-terminal, as over ssh: the screen is given back either way, and the status is 0."""
    with serving(busy(FakeCluster(service())), tmp_path) as kubeconfig:
        for leave in (b"q", signal.SIGINT):
            main, other = pty.openpty()
            with interrupts.heard():
                process = subprocess.Popen(
                    [sys.executable, "-c", "from outrider.cli.main import main; main()", "top"],
                    stdin=other, stdout=other, stderr=other, close_fds=True, start_new_session=True,
                    env={**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color"},
                )  # fmt: skip
            os.close(other)
            said = _until(main, b"ml/chat")
            if isinstance(leave, bytes):
                os.write(main, leave)
            else:
                process.send_signal(leave)
            said += _until(main, b"\x1b[?1049l")
            assert process.wait(timeout=120) == 0
            os.close(main)
            assert b"\x1b[?1049h" in said, "it takes a screen of its own"
            assert b"\x1b[?1049l" in said, "and gives it back"
            assert b"Traceback" not in said


def _until(terminal: int, wanted: bytes, patience_s: float = 300.0) -> bytes:
    """What the terminal shows up to and with these bytes."""
    said, end_s = b"", time.monotonic() + patience_s
    while wanted not in said and time.monotonic() < end_s:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:  # the other side has closed
                break
    return said
