"""What a platform team sets once for the whole operator, from the environment (``OUTRIDER_…``), checked at start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, HttpUrl
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def _names(value: object) -> object:
    """Names with commas between them, as people write lists in a variable."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


class Settings(BaseSettings):
    """Settings of one operator process; every field is an environment variable with the prefix ``OUTRIDER_``."""

    model_config = SettingsConfigDict(
        env_prefix="OUTRIDER_", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    prometheus_url: HttpUrl = Field(examples=["http://prometheus-operated.monitoring:9090"])
    """Where engine metrics are asked for."""
    keda_prometheus_url: HttpUrl | None = None
    """The same store as KEDA reaches it, if that is another address."""
    namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = ()
    """Namespaces to look after, with commas between them; empty for all of them."""
    operator_namespace: str | None = None
    """Namespace in which the operator runs, to which NetworkPolicies open the engines' admin ports; its pods in any
    namespace when left out."""
    control_period_s: float = Field(default=15.0, ge=1.0, le=120.0)
    """Seconds between two control passes."""
    scrape_interval_s: float = Field(default=5.0, ge=0.5, le=15.0)
    """How often Prometheus scrapes engines, seconds; windows span at least four scrapes."""
    scale_down_stabilization_s: int = Field(default=300, ge=0, le=3600)
    """The HPA's memory when it scales down, seconds, where a service does not set its own."""
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


def _default(field: FieldInfo) -> str:
    value = field.default
    if value in (None, ()):
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
