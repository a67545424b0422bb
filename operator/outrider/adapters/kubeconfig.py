"""The cluster that a user means: by kubeconfig and context as kubectl finds them, or that of the pod we run in."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from outrider.adapters.kube import Kube
from outrider.errors import KubeError

POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_FILE = Path("~/.kube/config")
REASON = "KubeconfigUnusable"


async def connect(kubeconfig: Path | None = None, context: str | None = None) -> tuple[Kube, str]:
    """A connection, and the namespace that the context names.

    Args:
        kubeconfig: a file; else those of ``KUBECONFIG``, else ``~/.kube/config``, else the service account of the pod.
        context: of that file; else its current one.

    Raises:
        KubeError: no cluster is known, or the file does not tell how to reach it.
    """
    named = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or str(DEFAULT_FILE)
    files = _files(named)
    configuration = Configuration()
    if not files:
        return _in_pod(configuration, named, asked=kubeconfig is not None or context is not None)
    location = os.pathsep.join(files)
    try:
        await kube_config.load_kube_config(location, context, configuration, persist_config=False)
        contexts, current = kube_config.list_kube_config_contexts(location)
    except (kube_config.ConfigException, OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        remedy = "kubectl config get-contexts lists what there is; choose with --kubeconfig and --context"
        raise KubeError(REASON, f"kubeconfig {named}: {why}: {remedy}") from error
    chosen = current if context is None else next(one for one in contexts if one["name"] == context)
    return Kube(ApiClient(configuration)), chosen["context"].get("namespace") or "default"


def own_namespace() -> str | None:
    """Namespace of the pod that this process runs in; None outside of one."""
    try:
        return POD_NAMESPACE.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _files(named: str) -> list[str]:
    """Those of a list of files that are there."""
    return [path for path in map(os.path.expanduser, named.split(os.pathsep)) if os.path.isfile(path)]


def _in_pod(configuration: Configuration, named: str, *, asked: bool) -> tuple[Kube, str]:
    missing = f"no kubeconfig at {named}: name the file with --kubeconfig or in KUBECONFIG"
    if asked:
        raise KubeError(REASON, missing)
    try:
        kube_config.load_incluster_config(client_configuration=configuration)
    except kube_config.ConfigException as error:
        raise KubeError(REASON, missing) from error
    namespace = own_namespace()
    if namespace is None:
        raise KubeError(REASON, missing)
    return Kube(ApiClient(configuration)), namespace
