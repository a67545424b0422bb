"""How the operator shows the metrics store who it is, and by which authorities it knows the store.

Secrets are files that are read again for every question, and certificates for every connection: a mounted Secret
changes under a running process. No message holds what such a file holds.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.auth import AuthBase

from outrider.adapters.bounded import BoundedSession, TooLong
from outrider.errors import AccessDenied, MetricsError, Unreachable
from outrider.settings import Settings, variable

MAX_FILE = 64 * 1024
"""No token, password or chain of certificates is longer; a wrong path may lead to something that is."""
BEARER, USER, PASSWORD = map(
    variable, ("prometheus_bearer_token_file", "prometheus_username", "prometheus_password_file")
)
CA, CERTIFICATE, KEY = map(
    variable, ("prometheus_ca_file", "prometheus_client_certificate_file", "prometheus_client_key_file")
)
HEADERS, URL = variable("prometheus_headers"), variable("prometheus_url")
SHOW = f"set {BEARER}, or {USER} and {PASSWORD}"

_TLS = (
    (
        r"hostname mismatch|ip address mismatch|is not valid for",
        "its certificate is for another host: look at {address}",
    ),
    (r"certificate has expired", "its certificate has expired: renew it"),
    (r"CERTIFICATE_VERIFY_FAILED", f"its certificate is signed by nobody whom we trust: look at {CA}"),
    (
        r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER",
        "it does not speak TLS there: look at http or https in {address}",
    ),
    (r"NO_CERTIFICATE_OR_CRL|CERTIFICATE_OR_CRL_FOUND", f"{CA} names a file without certificates in PEM"),
    (
        r"KEY_VALUES_MISMATCH|PEM lib|NO_START_LINE|BAD_BASE64",
        f"the files of {CERTIFICATE} and {KEY} are no certificate and key in PEM that belong together",
    ),
    (
        r"ALERT|HANDSHAKE_FAILURE|certificate required",
        f"it does not accept our certificate, or wants one: look at {CERTIFICATE} and {KEY}",
    ),
)
"""What the TLS library says, and what mends it; the first that fits counts."""
_NO_CONNECTION = (
    (r"resolve|name or service not known|getaddrinfo|no address", "the name of its host is not known here"),
    (r"refused", "nothing listens there"),
    (r"unreachable|no route", "no way leads there from here"),
)
"""What the system says where there is no connection at all, in plain words."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who we are to the store; the default is nobody in particular."""

    bearer_token_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    headers: tuple[tuple[str, str], ...] = ()
    address: str = URL
    """Where the store's address was read: what to look at when it is wrong."""

    @classmethod
    def of(cls, settings: Settings, address: str = URL) -> Access:
        """As the settings of the process say; ``address`` names what its address was read from."""
        return cls(
            settings.prometheus_bearer_token_file,
            settings.prometheus_username,
            settings.prometheus_password_file,
            settings.prometheus_ca_file,
            settings.prometheus_client_certificate_file,
            settings.prometheus_client_key_file,
            settings.prometheus_headers,
            address,
        )

    def session(self) -> requests.Session:
        """A session that shows all this with every request, and follows no redirect: headers would go with it."""
        session = BoundedSession()
        session.verify = True if self.ca_file is None else str(self.ca_file)
        if self.certificate_file is not None:
            session.cert = (str(self.certificate_file), str(self.key_file))
        session.headers.update(dict(self.headers))
        session.max_redirects = 0
        session.auth = _Shown(self)
        return session

    def authorization(self) -> str | None:
        """The header of that name, from the files as they are now; also sees that the other files can be read.

        Raises:
            AccessDenied: a file cannot be read, or holds nothing that could be sent.
        """
        for path, setting in ((self.ca_file, CA), (self.certificate_file, CERTIFICATE), (self.key_file, KEY)):
            if path is not None:
                _read(path, setting)
        if self.bearer_token_file is not None:
            token = _read(self.bearer_token_file, BEARER).strip()
            if not re.fullmatch(rb"[!-~]+", token):
                raise AccessDenied(
                    "CredentialsUnreadable", f"{BEARER}: {self.bearer_token_file} does not hold one token"
                )
            return f"Bearer {token.decode()}"
        if self.username is not None and self.password_file is not None:
            password = _read(self.password_file, PASSWORD).rstrip(b"\r\n")
            return f"Basic {base64.b64encode(self.username.encode() + b':' + password).decode()}"
        return None

    def explained(self, error: Exception, store: str) -> MetricsError:
        """What an unsuccessful question means, with the setting to look at; ``store`` begins the sentence."""
        if isinstance(error, AccessDenied):
            return AccessDenied(error.reason, f"{store}: {error.message}")
        if isinstance(error, TimeoutError | requests.Timeout):
            return Unreachable("PrometheusUnreachable", f"{store}: no answer in time: look at {self.address}")
        if isinstance(error, TooLong):
            why = f"its answer has {error}: give the operator more memory, or look at {self.address}"
            return Unreachable("PrometheusUnreachable", f"{store}: {why}")
        if isinstance(error, requests.TooManyRedirects):
            return Unreachable(
                "PrometheusUnreachable", f"{store}: it sends us elsewhere, to log in perhaps: look at {self.address}"
            )
        if isinstance(error, PrometheusApiClientException):
            return self._answered(str(error), store)
        if isinstance(error, requests.ConnectionError | OSError):
            found = next((remedy for pattern, remedy in _TLS if re.search(pattern, str(error), re.IGNORECASE)), None)
            if found is not None:
                return AccessDenied("PrometheusNotTrusted", f"{store}: {found.format(address=self.address)}")
            if re.search("Connection (aborted|broken)", str(error)):
                client = f"if it wants a certificate of its clients, look at {CERTIFICATE} and {KEY}"
                remedy = client if "https://" in store else f"if it speaks TLS, write https in {self.address}"
                return Unreachable("PrometheusUnreachable", f"{store}: it cut the connection; {remedy}")
            why = next((why for pattern, why in _NO_CONNECTION if re.search(pattern, str(error), re.IGNORECASE)), "")
            why = f", {why}" if why else ""
            return Unreachable("PrometheusUnreachable", f"{store}: no connection{why}: look at {self.address}")
        return Unreachable("PrometheusUnreachable", f"{store}: {type(error).__name__}")

    def _answered(self, said: str, store: str) -> MetricsError:
        """``said`` begins with ``HTTP Status Code 401``, and goes on with the answer."""
        status = re.search(r"\b(\d{3})\b", said)
        code = status[1] if status else ""
        if re.search(r"no org id|org ?id|tenant", said, re.IGNORECASE) and code in ("400", "401", "403", "422"):
            remedy = f"it wants to know the tenant: look at {HEADERS}, for example X-Scope-OrgID=ml"
        elif code == "401":
            remedy = f"it does not know us (401): {self._credentials()}"
        elif code == "403":
            remedy = (
                f"it knows us, and we may not ask (403): give this account the right to query, {self._credentials()}"
            )
        elif "HTTP request to an HTTPS server" in said:
            return AccessDenied("PrometheusNotTrusted", f"{store}: it speaks TLS there: write https in {self.address}")
        elif code in ("404", "405"):
            return Unreachable(
                "PrometheusUnreachable",
                f"{store}: no Prometheus answers there ({code}): look at host and path in {self.address}",
            )
        else:
            return Unreachable("PrometheusUnreachable", f"{store}: {self._masked(said).splitlines()[0][:200]}")
        return AccessDenied("PrometheusRefused", f"{store}: {remedy}")

    def _credentials(self) -> str:
        if self.bearer_token_file is not None:
            return f"look at the token that {BEARER} names"
        if self.username is not None:
            return f"look at {USER} and at the password that {PASSWORD} names"
        return SHOW

    def _masked(self, text: str) -> str:
        """A text without our secrets: some servers answer with what they were asked."""
        try:
            shown = self.authorization()
        except AccessDenied:
            shown = None
        secrets = [] if shown is None else [shown.split(" ", 1)[1]]
        if self.password_file is not None and shown is not None:
            secrets.append(base64.b64decode(secrets[0]).decode(errors="replace").split(":", 1)[1])
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return text


class _Shown(AuthBase):
    """Puts the authorization of the moment on every request; requests then never looks for a password in ~/.netrc."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        authorization = self._access.authorization()
        if authorization is not None:
            request.headers["Authorization"] = authorization
        return request


def _read(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise AccessDenied("CredentialsUnreadable", f"{setting}: {path} cannot be read: {why}") from error
    if not content.strip() or len(content) > MAX_FILE:
        why = "is empty" if not content.strip() else f"is longer than {MAX_FILE // 1024} KiB"
        raise AccessDenied("CredentialsUnreadable", f"{setting}: {path} {why}")
    return content
