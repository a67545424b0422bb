"""Settings from the environment: defaults, what follows from them, and what is refused."""

from __future__ import annotations

import os

import pytest
from pydantic import ValidationError

from outrider.settings import Settings

URL = "http://prometheus-operated.monitoring:9090"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the one setting that has no default."""
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OUTRIDER_PROMETHEUS_URL", URL)


def read() -> Settings:
    return Settings()  # type: ignore[call-arg]


def test_one_variable_is_enough() -> None:
    settings = read()
    assert settings.prometheus == URL
    assert settings.model_dump(exclude={"prometheus_url"}) == {
        "prometheus_bearer_token_file": None,
        "prometheus_username": None,
        "prometheus_password_file": None,
        "prometheus_ca_file": None,
        "prometheus_client_certificate_file": None,
        "prometheus_client_key_file": None,
        "prometheus_headers": (),
        "keda_prometheus_url": None,
        "keda_trigger_authentication": None,
        "keda_auth_modes": (),
        "namespaces": (),
        "operator_namespace": None,
        "leader_lease": "outrider",
        "pod_name": None,
        "control_period_s": 15.0,
        "scrape_interval_s": 5.0,
        "scale_down_stabilization_s": 300,
        "keda_polling_interval_s": 15,
        "gpu_settle_s": 600.0,
        "k_settle_s": 1800.0,
        "lease_s": 3600,
        "paused": False,
        "bind_address": "0.0.0.0",
        "metrics_port": 8080,
        "health_port": 8081,
        "log_level": "INFO",
    }


@pytest.mark.parametrize(
    ("period_s", "scrape_s", "window_s"),
    [
        pytest.param("15", "5", 30.0, id="two periods, so that windows overlap"),
        pytest.param("5", "5", 20.0, id="four scrapes, so that there is something to compare"),
        pytest.param("15", "15", 60.0, id="the slowest scrapes"),
        pytest.param("2", "0.5", 4.0, id="the local cluster"),
    ],
)
def test_window(monkeypatch: pytest.MonkeyPatch, period_s: str, scrape_s: str, window_s: float) -> None:
    monkeypatch.setenv("OUTRIDER_CONTROL_PERIOD_S", period_s)
    monkeypatch.setenv("OUTRIDER_SCRAPE_INTERVAL_S", scrape_s)
    assert read().window_s == window_s


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        pytest.param("", (), id="empty: all"),
        pytest.param("ml", ("ml",), id="one"),
        pytest.param("ml, research,", ("ml", "research"), id="several, with blanks and a comma too many"),
    ],
)
def test_namespaces(monkeypatch: pytest.MonkeyPatch, text: str, namespaces: tuple[str, ...]) -> None:
    monkeypatch.setenv("OUTRIDER_NAMESPACES", text)
    assert read().namespaces == namespaces


def test_addresses_are_used_without_the_slash_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_PROMETHEUS_URL", "http://thanos.monitoring:9090/prometheus/")
    assert read().prometheus == "http://thanos.monitoring:9090/prometheus"


def test_keda_asks_the_same_store_unless_it_is_told_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read().keda_prometheus == URL
    monkeypatch.setenv("OUTRIDER_KEDA_PROMETHEUS_URL", "http://prometheus.keda:9090/")
    assert read().keda_prometheus == "http://prometheus.keda:9090"


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        pytest.param("", (), id="none"),
        pytest.param("X-Scope-OrgID=ml", (("X-Scope-OrgID", "ml"),), id="the tenant"),
        pytest.param(
            "X-Scope-OrgID = a|b , X-From=outrider,", (("X-Scope-OrgID", "a|b"), ("X-From", "outrider")), id="two"
        ),
    ],
)
def test_headers(monkeypatch: pytest.MonkeyPatch, text: str, headers: tuple[tuple[str, str], ...]) -> None:
    monkeypatch.setenv("OUTRIDER_PROMETHEUS_HEADERS", text)
    assert read().prometheus_headers == headers


PASSWORD = {"prometheus_username": "outrider", "prometheus_password_file": "/p"}
TOKEN = {"prometheus_bearer_token_file": "/t"}
CERTIFICATE = {"prometheus_client_certificate_file": "/c", "prometheus_client_key_file": "/k"}
FOR_KEDA = {"keda_trigger_authentication": "outrider-prometheus"}


def given(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    for name, value in values.items():
        monkeypatch.setenv(f"OUTRIDER_{name.upper()}", value)
    return read()


@pytest.mark.parametrize(
    ("values", "modes"),
    [
        pytest.param(TOKEN, (), id="without a reference KEDA shows nothing"),
        pytest.param(TOKEN | FOR_KEDA, ("bearer",), id="what the operator shows: a token"),
        pytest.param(PASSWORD | CERTIFICATE | FOR_KEDA, ("basic", "tls"), id="a password and a certificate"),
        pytest.param(FOR_KEDA, (), id="nothing that we know of: the reference says it itself"),
        pytest.param(TOKEN | FOR_KEDA | {"keda_auth_modes": "tls, basic"}, ("tls", "basic"), id="another way"),
    ],
)
def test_how_keda_shows_who_it_is(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], modes: tuple[str, ...]
) -> None:
    assert given(monkeypatch, **values).auth_modes == modes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"prometheus_username": "a"}, "OUTRIDER_PROMETHEUS_PASSWORD_FILE", id="a user without a password"),
        pytest.param({"prometheus_password_file": "/p"}, "OUTRIDER_PROMETHEUS_USERNAME", id="a password of nobody"),
        pytest.param(
            {"prometheus_client_key_file": "/k"}, "OUTRIDER_PROMETHEUS_CLIENT_CERTIFICATE_FILE", id="a key alone"
        ),
        pytest.param(TOKEN | PASSWORD, "OUTRIDER_PROMETHEUS_BEARER_TOKEN_FILE", id="two ways at once"),
        pytest.param({"keda_auth_modes": "bearer"}, "OUTRIDER_KEDA_TRIGGER_AUTHENTICATION", id="modes of nothing"),
        pytest.param(FOR_KEDA | {"keda_auth_modes": "basic,bearer"}, "one of basic", id="two ways at once for KEDA"),
    ],
)
def test_settings_that_do_not_go_together_are_named(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        given(monkeypatch, **values)


def test_a_password_in_an_address_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses stand in ScaledObjects, which everybody in a service's namespace may read."""
    with pytest.raises(ValidationError) as caught:
        given(monkeypatch, prometheus_url="http://reader:hunter2@prometheus:9090")
    (fault,) = caught.value.errors()
    assert "a file with the password" in fault["msg"]
    assert "hunter2" not in fault["msg"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("prometheus_headers", "X-Scope-OrgID", id="a header without a value"),
        pytest.param("prometheus_headers", "X Y=ml", id="a header's name with a blank"),
        pytest.param("prometheus_headers", "X-Scope-OrgID=a=b", id="a value that KEDA could not read"),
        pytest.param("prometheus_headers", "Authorization=Bearer x", id="a secret in a header that everybody sees"),
        pytest.param("prometheus_username", "a:b", id="a user name that would be cut at its colon"),
        pytest.param("keda_trigger_authentication", "Outrider_Prometheus", id="no name of an object"),
        pytest.param("keda_auth_modes", "password", id="a mode that KEDA has not"),
        pytest.param("prometheus_url", "prometheus:9090", id="an address without a scheme"),
        pytest.param("control_period_s", "0.5", id="a period that Prometheus could not follow"),
        pytest.param("control_period_s", "600", id="a period in which a collapse would go unseen"),
        pytest.param("scrape_interval_s", "30", id="scrapes too rare for any window"),
        pytest.param("lease_s", "10", id="a lease that ends before its renewal"),
        pytest.param("paused", "perhaps", id="neither yes nor no"),
        pytest.param("metrics_port", "tcp://10.0.0.1:8080", id="the variable of a Service of that name"),
        pytest.param("log_level", "VERBOSE", id="a level that there is not"),
    ],
)
def test_what_is_refused_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"OUTRIDER_{name.upper()}", value)
    with pytest.raises(ValidationError) as caught:
        read()
    assert {fault["loc"][0] for fault in caught.value.errors()} == {name}


def test_the_store_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_PROMETHEUS_URL")
    with pytest.raises(ValidationError, match="prometheus_url"):
        read()


def test_settings_do_not_change_while_a_process_runs() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read().paused = True
