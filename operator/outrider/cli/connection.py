"""How commands reach the cluster and its metrics store, with the options by which kubectl's users know them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from outrider.api import API_VERSION, KIND
from outrider.cli.exits import ABSENT, Unusable
from outrider.errors import KubeError, NotFound, OperatorError

if TYPE_CHECKING:
    from outrider.adapters.prometheus_questions import Questions

URL_VARIABLE = "OUTRIDER_PROMETHEUS_URL"
COMPLETION_PATIENCE_S = 2.0
NAMED = 5
"""Services that are named where the one that was asked for is not there."""
OF_KEDA = "serverAddress of the ScaledObject, or name the store with --prometheus"
"""What to look at where the address is the one that KEDA was told."""
Manifest = dict[str, Any]


class Cluster(Protocol):
    """The calls that reading commands make."""

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """An object, or None."""

    async def list(
        self, api_version: str, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[Manifest]:
        """All objects of a kind."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What the options say about where to look."""

    namespace: str | None = None
    everywhere: bool = False
    context: str | None = None
    kubeconfig: Path | None = None
    prometheus: str | None = None

    def within(self, of_context: str) -> str | None:
        """The namespace to look in; None for all."""
        return None if self.everywhere else self.namespace or of_context


def names(incomplete: str) -> list[str]:
    """Services whose names begin so, for the shell's completion; none where the cluster does not answer at once."""

    async def found() -> list[str]:
        async with asyncio.timeout(COMPLETION_PATIENCE_S), connected(Reach()) as (kube, namespace):
            return [str(one["metadata"]["name"]) for one in await kube.list(API_VERSION, KIND, namespace)]

    try:
        return sorted(name for name in asyncio.run(found()) if name.startswith(incomplete))
    except (OperatorError, TimeoutError):
        return []


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The service.", autocompletion=names)]
MaybeName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One service. (default: all)", autocompletion=names)
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace to look in. (default: that of the context)"),
]
EverywhereOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Look in all namespaces.")]
ContextOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig. (default: its current one)")
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="How to reach the cluster. (default: the files of KUBECONFIG, else ~/.kube/config, else the service"
        " account of the pod)",
    ),
]
PrometheusOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"Metrics store to ask, with the credentials of the OUTRIDER_PROMETHEUS_… variables. (default:"
        f" {URL_VARIABLE}, else the address that a service's ScaledObject has, through the API server where only the"
        " cluster reaches it)",
    ),
]


@asynccontextmanager
async def connected(reach: Reach) -> AsyncIterator[tuple[Any, str]]:
    """A connection to the API server, and the namespace of the context."""
    from outrider.adapters import kubeconfig

    kube, namespace = await kubeconfig.connect(reach.kubeconfig, reach.context)
    try:
        yield kube, namespace
    finally:
        await kube.close()


async def services(kube: Cluster, reach: Reach, of_context: str, name: str | None = None) -> list[Manifest]:
    """The services that were asked for, in order of namespace and name.

    Raises:
        Unusable: the one that was named is not there, or the cluster does not know the kind.
        KubeError: the API server does not answer, or does not let us.
    """
    namespace = reach.within(of_context)
    try:
        found = await kube.list(API_VERSION, KIND, namespace)
    except NotFound as error:
        raise Unusable(f"the cluster does not know the kind {KIND}: install its definition, crds/ or chart") from error
    if name is not None:
        others = sorted(_called(one, namespace) for one in found)
        found = [one for one in found if one["metadata"]["name"] == name]
        if not found:
            raise Unusable(_absent(name, namespace, others), ABSENT)
    return sorted(found, key=lambda one: (str(one["metadata"]["namespace"]), str(one["metadata"]["name"])))


def _called(one: Manifest, namespace: str | None) -> str:
    """A service as one would name it: where several namespaces were looked at, with its own."""
    metadata = one["metadata"]
    return str(metadata["name"]) if namespace is not None else f"{metadata['namespace']}/{metadata['name']}"


def _absent(name: str, namespace: str | None, others: Sequence[str]) -> str:
    """That there is no such service, and which one may have been meant; ``others`` are all that there are."""
    near = get_close_matches(name, [one.rsplit("/", 1)[-1] for one in others], n=1)
    if not others:
        known = "there is none at all"
    elif near:
        meant = next(one for one in others if one.rsplit("/", 1)[-1] == near[0])
        known = f"did you mean {meant}?"
    else:
        rest = len(others) - NAMED
        more = f" and {rest} more" if rest > 0 else ""
        known = f"there is only {others[0]}" if len(others) == 1 else f"there are {', '.join(others[:NAMED])}{more}"
    if namespace is None:
        return f"no namespace has a service {name}: {known}"
    return f"namespace {namespace} has no service {name}: {known} (-n NAME looks in another namespace)"


async def store(kube: Any, reach: Reach, found: Sequence[Manifest]) -> Questions:
    """The metrics store to ask.

    Raises:
        Unusable: no address is known, or a setting is wrong.
    """
    from outrider.adapters.prometheus_questions import ThroughKube, in_cluster

    given = reach.prometheus or os.environ.get(URL_VARIABLE)
    if given:
        return _direct(given, "--prometheus" if reach.prometheus else URL_VARIABLE)
    address = await _told_to_keda(kube, found)
    if address is None:
        raise Unusable(f"no metrics store is known: name it with --prometheus or in {URL_VARIABLE}")
    if in_cluster(address) and "KUBERNETES_SERVICE_HOST" not in os.environ:
        return ThroughKube(kube, address, f"look at {OF_KEDA}")
    return _direct(address, OF_KEDA)


def _direct(url: str, named_by: str) -> Questions:
    from pydantic import ValidationError

    from outrider.adapters.prometheus_access import Access
    from outrider.adapters.prometheus_questions import Direct
    from outrider.settings import Settings, fault_sentence

    try:
        settings = Settings(prometheus_url=url)  # type: ignore[arg-type]  # pydantic makes an address of the text
    except ValidationError as error:
        raise Unusable("; ".join(map(fault_sentence, error.errors(include_url=False)))) from error
    return Direct(settings.prometheus, Access.of(settings, named_by))


async def _told_to_keda(kube: Cluster, found: Sequence[Manifest]) -> str | None:
    """The store's address in the first ScaledObject that has one: what the operator told KEDA."""
    for one in found:
        metadata = one["metadata"]
        try:
            scaled = await kube.get("keda.sh/v1alpha1", "ScaledObject", metadata["namespace"], metadata["name"])
        except KubeError:  # without the right to look, the user has to name the store
            return None
        address = _server_address({} if scaled is None else scaled)
        if address is not None:
            return address
    return None


def _server_address(scaled: Mapping[str, Any]) -> str | None:
    triggers = scaled.get("spec", {}).get("triggers", [])
    return next(
        (str(one["metadata"]["serverAddress"]) for one in triggers if "serverAddress" in one.get("metadata", {})), None
    )
