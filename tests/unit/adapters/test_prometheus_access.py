"""Stores that want to know who asks: what the operator shows them, and what it says when that does not do.

A pretend store checks tokens, passwords, tenants and certificates as gateways before Prometheus, Thanos and Mimir do.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from outrider.adapters.prometheus import GROUPS, Prometheus
from outrider.adapters.prometheus_access import Access
from outrider.errors import AccessDenied, MetricsError, Unreachable
from outrider.settings import Settings
from tests.testbed.pki import Authority

from .servers import Answer, Server, answer, hang_up, serving

AT_S = 1_800_000_000.0
EMPTY: Any = {"status": "success", "data": {"resultType": "matrix", "result": []}}
SECRET = "s3cret-hunter2"
BASIC = "Basic " + base64.b64encode(f"outrider:{SECRET}".encode()).decode()


def wanting(header: str, value: str, status: int = 401, text: str = "Unauthorized") -> Answer:
    """A store that answers only to questions with this header."""

    async def give(request: web.Request) -> web.StreamResponse:
        right = request.headers.get(header) == value
        return await (answer(body=EMPTY) if right else answer(status, text=text))(request)

    return give


def file(folder: Path, name: str, content: str = SECRET) -> Path:
    path = folder / name
    path.write_text(content)
    return path


async def ask(give: Answer, access: Access, tls: ssl.SSLContext | None = None, host: str = "") -> Server:
    async with serving(give, tls=tls) as server:
        url = server.url.replace("127.0.0.1", host) if host else server.url
        await Prometheus(url, access, timeout_s=60.0).engine_series(40.0, AT_S)
    return server


async def refused(give: Answer, access: Access, tls: ssl.SSLContext | None = None, host: str = "") -> MetricsError:
    """The error of a question; whatever it is, it holds no secret."""
    with pytest.raises(MetricsError) as caught:
        await ask(give, access, tls, host)
    assert SECRET not in caught.value.message
    assert BASIC.split()[1] not in caught.value.message
    assert caught.value.message.startswith("Prometheus at http")
    return caught.value


class TestToken:
    async def test_it_goes_with_every_question(self, tmp_path: Path) -> None:
        access = Access(bearer_token_file=file(tmp_path, "token", f"{SECRET}\n"))
        server = await ask(wanting("Authorization", f"Bearer {SECRET}"), access)
        assert len(server.asked) == len(GROUPS)

    async def test_a_renewed_one_is_used_at_once(self, tmp_path: Path) -> None:
        path = file(tmp_path, "token", "old")
        async with serving(wanting("Authorization", "Bearer new")) as server:
            store = Prometheus(server.url, Access(bearer_token_file=path))
            with pytest.raises(AccessDenied):
                await store.engine_series(40.0, AT_S)
            path.write_text("new")
            assert await store.engine_series(40.0, AT_S) == {}

    async def test_a_password_of_the_home_folder_does_not_take_its_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        netrc = file(tmp_path, "netrc", "machine 127.0.0.1 login somebody password else")
        monkeypatch.setenv("NETRC", str(netrc))
        await ask(wanting("Authorization", "Bearer t"), Access(bearer_token_file=file(tmp_path, "token", "t")))

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            pytest.param("", "is empty", id="nothing"),
            pytest.param(" \n", "is empty", id="blanks"),
            pytest.param(f"{SECRET}\nX-Evil: 1", "does not hold one token", id="two lines"),
            pytest.param(f"{SECRET} ü", "does not hold one token", id="what no header may hold"),
            pytest.param(SECRET * 6000, "is longer than 64 KiB", id="something else"),
        ],
    )
    async def test_a_file_without_one_is_named_and_not_repeated(self, tmp_path: Path, content: str, said: str) -> None:
        error = await refused(answer(body=EMPTY), Access(bearer_token_file=file(tmp_path, "token", content)))
        assert error.reason == "CredentialsUnreadable"
        assert "OUTRIDER_PROMETHEUS_BEARER_TOKEN_FILE" in error.message
        assert said in error.message


class TestPassword:
    async def test_user_and_password_go_with_every_question(self, tmp_path: Path) -> None:
        access = Access(username="outrider", password_file=file(tmp_path, "password", f"{SECRET}\n"))
        await ask(wanting("Authorization", BASIC), access)

    async def test_it_may_hold_blanks_and_letters_of_any_kind(self, tmp_path: Path) -> None:
        wanted = "Basic " + base64.b64encode("me: pä:ss ".encode()).decode()
        await ask(
            wanting("Authorization", wanted),
            Access(username="me", password_file=file(tmp_path, "password", " pä:ss \n")),
        )


@pytest.mark.failure(
    "Prometheus",
    "refuses us",
    k="held",
    conditions=["MetricsAvailable False PrometheusRefused"],
    status="with the setting",
    alerts=["OutriderMetricsMissing"],
    ends="next pass; files are read for every question",
    guard="adapters/prometheus_access.py:Access.explained",
)
@pytest.mark.parametrize(
    ("shown", "status", "text", "names"),
    [
        pytest.param("nothing", 401, "Unauthorized", ("BEARER_TOKEN_FILE", "USERNAME", "PASSWORD_FILE"), id="nobody"),
        pytest.param("token", 401, "Unauthorized", ("BEARER_TOKEN_FILE",), id="a wrong token"),
        pytest.param("password", 401, "Unauthorized", ("USERNAME", "PASSWORD_FILE"), id="a wrong password"),
        pytest.param("token", 403, "Forbidden", ("right to query", "BEARER_TOKEN_FILE"), id="a right that is lacking"),
        pytest.param("token", 401, "no org id", ("_HEADERS", "X-Scope-OrgID"), id="no tenant"),
    ],
)
async def test_who_is_not_known_reads_which_setting_to_look_at(
    tmp_path: Path, shown: str, status: int, text: str, names: tuple[str, ...]
) -> None:
    path = file(tmp_path, "secret")
    access = {
        "nothing": Access(),
        "token": Access(bearer_token_file=path),
        "password": Access(username="outrider", password_file=path),
    }[shown]
    error = await refused(wanting("Authorization", "another", status, text), access)
    assert (type(error), error.reason) == (AccessDenied, "PrometheusRefused")
    assert [name for name in names if name not in error.message] == []


@pytest.mark.parametrize("echo", [BASIC, SECRET], ids=["the header", "the password"])
async def test_a_server_that_repeats_what_it_was_sent_gives_nothing_away(tmp_path: Path, echo: str) -> None:
    access = Access(username="outrider", password_file=file(tmp_path, "password"))
    error = await refused(answer(500, text=f"cannot read {echo} at all"), access)
    assert "cannot read" in error.message
    assert "***" in error.message


async def test_the_tenant_goes_with_every_question() -> None:
    await ask(wanting("X-Scope-OrgID", "ml"), Access(headers=(("X-Scope-OrgID", "ml"),)))
    error = await refused(wanting("X-Scope-OrgID", "ml", text="no org id"), Access())
    assert "OUTRIDER_PROMETHEUS_HEADERS" in error.message


async def test_no_secret_follows_a_redirect(tmp_path: Path) -> None:
    access = Access(bearer_token_file=file(tmp_path, "token"), headers=(("X-Scope-OrgID", "ml"),))
    async with serving(answer(body=EMPTY)) as elsewhere:
        error = await refused(answer(307, Location=f"{elsewhere.url}/api/v1/query"), access)
    assert elsewhere.asked == []
    assert "sends us elsewhere" in error.message
    assert "OUTRIDER_PROMETHEUS_URL" in error.message


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of the company."""
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another one."""
    return Authority(tmp_path_factory.mktemp("theirs"), "theirs")


def server_side(authority: Authority, *, asks_clients: bool = False) -> ssl.SSLContext:
    pair = authority.issue("store", subject="store", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if asks_clients:
        context.load_verify_locations(authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TestAuthority:
    async def test_a_store_of_our_own_authority_is_trusted(self, ours: Authority) -> None:
        await ask(answer(body=EMPTY), Access(ca_file=ours.certificate), server_side(ours))

    async def test_no_other_is_and_no_secret_is_sent_to_it(
        self, ours: Authority, theirs: Authority, tmp_path: Path
    ) -> None:
        token = file(tmp_path, "token")
        for access in (Access(token), Access(token, ca_file=theirs.certificate)):
            async with serving(answer(body=EMPTY), tls=server_side(ours)) as server:
                with pytest.raises(AccessDenied) as caught:
                    await Prometheus(server.url, access).engine_series(40.0, AT_S)
            assert caught.value.reason == "PrometheusNotTrusted"
            assert "OUTRIDER_PROMETHEUS_CA_FILE" in caught.value.message
            assert server.asked == []

    async def test_a_variable_of_the_library_does_not_replace_it(
        self, ours: Authority, theirs: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(theirs.certificate))
        await ask(answer(body=EMPTY), Access(ca_file=ours.certificate), server_side(ours))

    async def test_a_certificate_for_another_host_is_another_fault(self, ours: Authority) -> None:
        error = await refused(answer(body=EMPTY), Access(ca_file=ours.certificate), server_side(ours), "localhost")
        assert "another host" in error.message
        assert "OUTRIDER_PROMETHEUS_URL" in error.message

    async def test_a_store_without_tls_is_told_so(self) -> None:
        async with serving(answer(body=EMPTY)) as server:
            with pytest.raises(AccessDenied) as caught:
                await Prometheus(server.url.replace("http", "https")).engine_series(40.0, AT_S)
        assert "http or https in OUTRIDER_PROMETHEUS_URL" in caught.value.message

    async def test_a_question_without_tls_to_a_store_with_it_is_told_so(self) -> None:
        text = "Client sent an HTTP request to an HTTPS server."  # the words of Go's HTTP server
        error = await refused(answer(400, text=text), Access())
        assert "write https in OUTRIDER_PROMETHEUS_URL" in error.message

    async def test_a_connection_that_it_cuts_may_want_tls(self) -> None:
        """Go's HTTP server often closes before its words about it were read."""
        error = await refused(hang_up, Access())
        assert (error.reason, "if it speaks TLS, write https in" in error.message) == ("PrometheusUnreachable", True)


class TestCertificate:
    def access(self, ours: Authority, authority: Authority | None = None) -> Access:
        if authority is None:
            return Access(ca_file=ours.certificate)
        pair = authority.issue("operator", subject="outrider")
        return Access(ca_file=ours.certificate, certificate_file=pair.certificate, key_file=pair.key)

    async def test_ours_is_shown(self, ours: Authority) -> None:
        await ask(answer(body=EMPTY), self.access(ours, ours), server_side(ours, asks_clients=True))

    @pytest.mark.parametrize("shown", ["none", "of another authority"])
    async def test_one_that_is_not_accepted_is_named(self, ours: Authority, theirs: Authority, shown: str) -> None:
        access = self.access(ours, None if shown == "none" else theirs)
        error = await refused(answer(body=EMPTY), access, server_side(ours, asks_clients=True))
        assert "OUTRIDER_PROMETHEUS_CLIENT_CERTIFICATE_FILE" in error.message

    async def test_a_renewed_one_is_shown_with_the_next_connection(self, ours: Authority, theirs: Authority) -> None:
        access = self.access(ours, theirs)
        assert access.certificate_file is not None
        assert access.key_file is not None
        async with serving(answer(body=EMPTY), tls=server_side(ours, asks_clients=True)) as server:
            store = Prometheus(server.url, access)
            with pytest.raises(MetricsError):
                await store.engine_series(40.0, AT_S)
            renewed = ours.issue("renewed", subject="outrider")
            access.certificate_file.write_bytes(renewed.certificate.read_bytes())
            access.key_file.write_bytes(renewed.key.read_bytes())
            assert await store.engine_series(40.0, AT_S) == {}

    async def test_a_key_of_another_certificate_is_told(self, ours: Authority) -> None:
        one, other = ours.issue("one", subject="one"), ours.issue("other", subject="other")
        access = Access(ca_file=ours.certificate, certificate_file=one.certificate, key_file=other.key)
        error = await refused(answer(body=EMPTY), access, server_side(ours, asks_clients=True))
        assert "belong together" in error.message
        assert "OUTRIDER_PROMETHEUS_CLIENT_KEY_FILE" in error.message


@pytest.mark.parametrize(
    ("field", "setting"),
    [
        ("bearer_token_file", "OUTRIDER_PROMETHEUS_BEARER_TOKEN_FILE"),
        ("password_file", "OUTRIDER_PROMETHEUS_PASSWORD_FILE"),
        ("ca_file", "OUTRIDER_PROMETHEUS_CA_FILE"),
        ("certificate_file", "OUTRIDER_PROMETHEUS_CLIENT_CERTIFICATE_FILE"),
        ("key_file", "OUTRIDER_PROMETHEUS_CLIENT_KEY_FILE"),
    ],
)
async def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path: Path, field: str, setting: str) -> None:
    user = {"username": "outrider"} if field == "password_file" else {}
    access = Access(**{field: tmp_path / "gone"}, **user)  # type: ignore[arg-type]
    error = await refused(answer(body=EMPTY), access)
    assert error.reason == "CredentialsUnreadable"
    assert f"{setting}: {tmp_path / 'gone'} cannot be read: No such file or directory" in error.message


async def test_an_authority_file_without_certificates_is_told(tmp_path: Path, ours: Authority) -> None:
    error = await refused(answer(body=EMPTY), Access(ca_file=file(tmp_path, "ca")), server_side(ours))
    assert "OUTRIDER_PROMETHEUS_CA_FILE" in error.message


async def test_what_has_nothing_to_do_with_access_is_told_as_before() -> None:
    error = await refused(answer(503, text="overloaded"), Access())
    assert (type(error), error.reason) == (Unreachable, "PrometheusUnreachable")
    assert "overloaded" in error.message


def test_access_is_what_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[..., Settings] = Settings
    settings = make(
        prometheus_url="https://thanos.monitoring:9090",
        prometheus_username="outrider",
        prometheus_password_file=tmp_path / "p",
        prometheus_ca_file=tmp_path / "ca",
        prometheus_client_certificate_file=tmp_path / "c",
        prometheus_client_key_file=tmp_path / "k",
        prometheus_headers="X-Scope-OrgID=ml",
    )
    assert Access.of(settings) == Access(
        None, "outrider", tmp_path / "p", tmp_path / "ca", tmp_path / "c", tmp_path / "k", (("X-Scope-OrgID", "ml"),)
    )
