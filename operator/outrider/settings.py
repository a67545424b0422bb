"""What a platform team sets once for the whole operator, from the environment (``OUTRIDER_…``), checked at start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, HttpUrl, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def _names(value: object) -> object:
    """Names with commas between them, as people write lists in a variable."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _headers(value: object) -> object:
    """``Name=value`` with commas between them, the form that KEDA takes too."""
    if not isinstance(value, str):
        return value
    return [tuple(part.strip() for part in one.split("=", 1)) for one in value.split(",") if one.strip()]


def _public(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Headers that KEDA can be told of in a ScaledObject, which everybody in a service's namespace may read."""
    for name, value in headers:
        if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not re.fullmatch(
            r"[!-+\--<>-~]([ -+\--<>-~]*[!-+\--<>-~])?", value
        ):
            raise ValueError("a header is Name=value, and its value has neither commas nor equals signs")
        if name.lower() in ("authorization", "cookie", "proxy-authorization"):
            raise ValueError(
                f"{name} carries a secret and belongs into a file: bearer token, or user name and password"
            )
    return headers


def _without_password(url: HttpUrl) -> HttpUrl:
    """Addresses go to logs, conditions and ScaledObjects."""
    if url.username is not None or url.password is not None:
        raise ValueError("a password has no place in an address: name the user and a file with the password")
    return url


Headers = Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(_headers), AfterValidator(_public)]
Url = Annotated[HttpUrl, AfterValidator(_without_password)]
AuthMode = Literal["basic", "bearer", "custom", "oauth", "tls"]


class Settings(BaseSettings):
    """Settings of one operator process; every field is an environment variable with the prefix ``OUTRIDER_``."""

    model_config = SettingsConfigDict(
        env_prefix="OUTRIDER_", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    prometheus_url: Url = Field(examples=["http://prometheus-operated.monitoring:9090"])
    """Where engine metrics are asked for."""
    prometheus_bearer_token_file: Path | None = None
    """File with the token that the store wants, read again for every question."""
    prometheus_username: str | None = Field(default=None, min_length=1, pattern="^[^:]+$")
    """User name that the store wants."""
    prometheus_password_file: Path | None = None
    """File with that user's password, read again for every question."""
    prometheus_ca_file: Path | None = None
    """File with the authorities that may have signed the store's certificate; those of the system when left out."""
    prometheus_client_certificate_file: Path | None = None
    """File with the certificate that the store wants of its clients, read again for every connection."""
    prometheus_client_key_file: Path | None = None
    """File with the key of that certificate."""
    prometheus_headers: Headers = Field(default=(), examples=["X-Scope-OrgID=ml"])
    """Headers of every question, KEDA's too, as Name=value with commas between them, such as the tenant of Thanos or
    Mimir; no secrets, since ScaledObjects show them."""
    keda_prometheus_url: Url | None = None
    """The same store as KEDA reaches it, if that is another address."""
    keda_trigger_authentication: str | None = Field(
        default=None, max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
    )
    """Name of the ClusterTriggerAuthentication with which KEDA shows the store who it is; none when left out."""
    keda_auth_modes: Annotated[tuple[AuthMode, ...], NoDecode, BeforeValidator(_names)] = ()
    """What KEDA takes from it, with commas between them: basic, bearer, tls, custom, oauth; what the operator itself
    shows the store when left out."""
    namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = ()
    """Namespaces to look after, with commas between them; empty for all of them."""
    operator_namespace: str | None = None
    """Namespace in which the operator runs, to which NetworkPolicies open the engines' admin ports; its pods in any
    namespace when left out."""
    leader_lease: str = Field(default="outrider", max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    """Lease in the operator's namespace that only one operator holds at a time, the active one; operators that look
    after different namespaces need different names."""
    pod_name: str | None = Field(default=None, min_length=1, max_length=253)
    """Name of the operator's pod, by which the Lease says who is active; the host's name and a random number when left
    out."""
    control_period_s: float = Field(default=15.0, ge=1.0, le=120.0)
    """Seconds between two control passes."""
    scrape_interval_s: float = Field(default=5.0, ge=0.5, le=15.0)
    """How often Prometheus scrapes engines, seconds; windows span at least four scrapes."""
    scale_down_stabilization_s: int = Field(default=300, ge=0, le=3600)
    """The HPA's memory when it scales down, seconds, where a service does not set its own."""
    keda_polling_interval_s: int = Field(default=15, ge=1, le=120)
    """How often KEDA asks its queries, seconds: as often as the HPA looks, which is 15 unless kube-controller-manager
    was started with another --horizontal-pod-autoscaler-sync-period."""
    gpu_settle_s: float = Field(default=600.0, ge=10.0, le=7200.0)
    """How long a running replica must be needed more by another service under the same GPU quota before it goes, and
    the time between two, seconds: longer than models take to load."""
    k_settle_s: float = Field(default=1800.0, ge=10.0, le=86400.0)
    """How long engines that must be restarted for another K keep theirs, seconds; that much of load and acceptance is
    looked back on."""
    lease_s: int = Field(default=3600, ge=60, le=86400)
    """How long engines keep a delivered schedule without hearing from the operator, seconds."""
    paused: bool = False
    """Observe and explain for the whole fleet, change nothing."""
    bind_address: str = "0.0.0.0"
    """Address of the two ports below."""
    metrics_port: int = Field(default=8080, ge=0, le=65535)
    """Port of the operator's own metrics; 0 turns them off."""
    health_port: int = Field(default=8081, ge=0, le=65535)
    """Port of the liveness probe; 0 turns it off."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe messages that are logged: DEBUG, INFO, WARNING or ERROR."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Ways to show who one is come whole, and one at a time."""
        for one, other in (
            ("prometheus_username", "prometheus_password_file"),
            ("prometheus_client_certificate_file", "prometheus_client_key_file"),
        ):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"{variable(one)} and {variable(other)} go together: set both, or none")
        if self.prometheus_bearer_token_file is not None and self.prometheus_username is not None:
            names = f"{variable('prometheus_bearer_token_file')} or {variable('prometheus_username')}"
            raise ValueError(f"a question has one Authorization: set {names}, not both")
        if self.keda_auth_modes and self.keda_trigger_authentication is None:
            name = variable("keda_trigger_authentication")
            raise ValueError(f"{variable('keda_auth_modes')} says what KEDA takes from {name}: set that too")
        if len({"basic", "bearer", "oauth"} & set(self.keda_auth_modes)) > 1:
            raise ValueError(f"{variable('keda_auth_modes')}: KEDA takes one of basic, bearer and oauth")
        return self

    @property
    def window_s(self) -> float:
        """Length of the window that decisions look at: four scrapes at least, two periods so that windows overlap."""
        return max(4.0 * self.scrape_interval_s, 2.0 * self.control_period_s)

    @property
    def prometheus(self) -> str:
        """The metrics store's address without a trailing slash."""
        return str(self.prometheus_url).rstrip("/")

    @property
    def keda_prometheus(self) -> str:
        """The metrics store's address for KEDA's triggers."""
        return str(self.keda_prometheus_url or self.prometheus_url).rstrip("/")

    @property
    def auth_modes(self) -> tuple[AuthMode, ...]:
        """What KEDA takes from its ClusterTriggerAuthentication; empty without one, or when that says so itself."""
        if self.keda_trigger_authentication is None or self.keda_auth_modes:
            return self.keda_auth_modes
        own: dict[AuthMode, object] = {
            "basic": self.prometheus_username,
            "bearer": self.prometheus_bearer_token_file,
            "tls": self.prometheus_client_certificate_file,
        }
        return tuple(mode for mode, shown in own.items() if shown is not None)


def variable(field: str) -> str:
    """The environment variable of a field."""
    return f"{Settings.model_config['env_prefix']}{field.upper()}"


def example(field: str) -> str:
    """``VARIABLE=value`` to start from; empty for a field that shows none."""
    examples = Settings.model_fields[field].examples
    return f"{variable(field)}={examples[0]}" if examples else ""


def described() -> list[str]:
    """A line for each variable: what it is, and its default or an example."""
    lines = []
    for name, field in Settings.model_fields.items():
        text = " ".join((field.description or "").split()).rstrip(".")
        known = f"required, for example {example(name)}" if field.is_required() else f"default: {_default(field)}"
        lines.append(f"{variable(name)}: {text} ({known})")
    return lines


def fault_sentence(fault: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a sentence that names the variable and what to write there."""
    if not fault["loc"]:  # settings that do not go together, which the sentence names
        return _found(fault)
    field = str(fault["loc"][0])
    found = "is not set" if fault["type"] == "missing" else _found(fault)
    start = example(field)
    return f"setting {variable(field)}: {found}" + (f"; write for example {start}" if start else "")


def _found(fault: Mapping[str, Any]) -> str:
    return str(fault["msg"]).removeprefix("Value error, ")


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == ():
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
