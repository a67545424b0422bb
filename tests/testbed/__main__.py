"""The local cluster from a shell: ``python -m tests.testbed``, run in the repository's folder.

Ends with status 0 when all went well, 1 when something failed or does not run, 2 on a wrong call, 130 on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.build import ensure_tools
from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError
from tests.testbed.processes import Process
from tests.testbed.progress import duration, line_reporter
from tests.testbed.state import ClusterState, all_states, clusters_folder, discard, end, read_state
from tests.testbed.tools import NEEDS, close_over

DEFAULT_NAME = "default"
_COMMAND = "python -m tests.testbed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # End in order on a plain kill, too.
    try:
        status: int = options.run(options)
    except ClusterError as error:
        print(f"{_coloured('error:', '31', sys.stderr.isatty())} {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was left running", file=sys.stderr)
        return 130
    return status


def up(options: argparse.Namespace) -> int:
    """Start a cluster, and leave it running or wait for Ctrl-C."""
    began = time.monotonic()
    cluster = Cluster(
        options.parts,
        run_dir=clusters_folder() / options.name,
        owned=options.foreground,
        dilation=options.dilation,
        scrape_interval_s=options.scrape_interval,
        nodes=options.nodes,
        gpus_per_node=options.gpus,
        hpa_sync_s=options.hpa_sync,
        hpa_downscale_s=options.hpa_downscale,
    )
    cluster.start()
    try:
        parts = ", ".join(sorted(cluster.parts))
        print(f"Cluster {_good(options.name)} is up after {duration(time.monotonic() - began)}: {parts}.\n")
        _print_access(_running(options.name))
        if options.foreground:
            print("\nCtrl-C ends it.", flush=True)
            while True:
                signal.pause()
    finally:
        if options.foreground:
            cluster.stop()
    print(f"\nEnd it with: {_COMMAND} down{_named(options.name)}")
    return 0


def down(options: argparse.Namespace) -> int:
    """End one cluster, or all that live until they are told to."""
    if options.all:
        states = [state for state in all_states() if state.owner is None]
    else:
        found = read_state(clusters_folder() / options.name)
        if found is None:
            raise ClusterError(f"there is no cluster {options.name!r}", f"See which there are: {_COMMAND} status")
        states = [found]
    for state in states:
        end(state.table)
        discard(state.path)
        print(f"Cluster {state.name} has ended; its logs stay in {state.path / 'logs'}")
    return 0


def status(options: argparse.Namespace) -> int:
    """Describe one cluster, or all."""
    states = [state for state in all_states() if options.name in (None, state.name)]
    for state in states:
        ended = _ended(state)
        healthy = state.running and not ended
        owner = "until `down`" if state.owner is None else f"with process {state.owner[0]}"
        word = _good("up") if healthy else _bad("in trouble" if state.running else "not running")
        print(f"{state.name}: {word}, lives {owner}, parts {', '.join(state.parts)}")
        _print_access(state)
        for process in ended:
            print(f"  {_bad('ended')}  {process.name}; log: {process.log}")
    if not states:
        print("No cluster runs." if options.name is None else f"No cluster {options.name} runs.")
    return 0 if states and all(state.running and not _ended(state) for state in states) else 1


def kubeconfig(options: argparse.Namespace) -> int:
    """Print where the kubeconfig is."""
    print(_running(options.name).kubeconfig)
    return 0


def env(options: argparse.Namespace) -> int:
    """Print what a shell needs to know of a cluster, for `eval`."""
    state = _running(options.name)
    print(f"export KUBECONFIG={shlex.quote(state.kubeconfig)}")
    print(f"export PATH={shlex.quote(str(Path(state.kubectl).parent))}:$PATH")
    if state.prometheus_url:
        print(f"export OUTRIDER_PROMETHEUS_URL={shlex.quote(state.prometheus_url)}")
    return 0


def build(options: argparse.Namespace) -> int:
    """Build what a cluster needs."""
    began = time.monotonic()
    tools = ensure_tools(options.parts, line_reporter())
    print(f"All {len(tools.builds)} tools are ready after {duration(time.monotonic() - began)}.")
    return 0


def _print_access(state: ClusterState) -> None:
    print(f"  export KUBECONFIG={state.kubeconfig}")
    print(f"  export PATH={Path(state.kubectl).parent}:$PATH   # has kubectl")
    if state.prometheus_url:
        print(f"  Prometheus: {state.prometheus_url}")
    print(f"  Logs:       {state.path / 'logs'}")


def _running(name: str) -> ClusterState:
    state = read_state(clusters_folder() / name)
    if state is None or not state.running:
        others = [f"{one.name} (--name {one.name})" for one in all_states() if one.running]
        running = f"These run: {', '.join(others)}. " if others else ""
        raise ClusterError(f"cluster {name!r} does not run", f"{running}Start it: {_COMMAND} up{_named(name)}")
    return state


def _named(name: str) -> str:
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _ended(state: ClusterState) -> list[Process]:
    return [process for process in state.table.all() if not process.alive]


def _good(text: str) -> str:
    return _coloured(text, "32", sys.stdout.isatty())


def _bad(text: str) -> str:
    return _coloured(text, "31", sys.stdout.isatty())


def _coloured(text: str, code: str, terminal: bool) -> str:
    wanted = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\033[{code}m{text}\033[0m" if wanted else text


def _parts(text: str) -> frozenset[str]:
    try:
        return close_over(NEEDS if text == "all" else [part for part in text.split(",") if part])
    except ClusterError as error:
        raise argparse.ArgumentTypeError(f"{error.message}. {error.remedy}") from error


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", text):
        raise argparse.ArgumentTypeError("a name has up to 41 small letters, digits and dashes")
    return text


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description="A local Kubernetes cluster without containers: a real control plane, with kwok, Prometheus, KEDA "
        "and simulated engines as asked for. See tests/testbed/README.md.",
        epilog="Exit status: 0 success, 1 failure or not running, 2 wrong call, 130 Ctrl-C.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_up(commands)
    command = commands.add_parser("down", help="end a cluster", description=down.__doc__)
    _add_name(command)
    command.add_argument("--all", action="store_true", help="all clusters that live until `down`")
    command.set_defaults(run=down)

    command = commands.add_parser(
        "status", help="which clusters there are, and how they do", description=status.__doc__
    )
    command.add_argument("--name", type=_name, default=None, help="one cluster (default: all)")
    command.set_defaults(run=status)

    command = commands.add_parser("kubeconfig", help="print the path of the kubeconfig", description=kubeconfig.__doc__)
    _add_name(command)
    command.set_defaults(run=kubeconfig)

    command = commands.add_parser("env", help='print exports for a shell: eval "$(...)"', description=env.__doc__)
    _add_name(command)
    command.set_defaults(run=env)

    command = commands.add_parser("build", help="build the tools, without a start", description=build.__doc__)
    _add_parts(command)
    command.set_defaults(run=build)
    return parser


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("up", help="start a cluster; it lives until `down`", description=up.__doc__)
    _add_parts(command)
    _add_name(command)
    command.add_argument("--foreground", action="store_true", help="stay, and end the cluster on Ctrl-C")
    command.add_argument("--dilation", type=_positive, default=1.0, help="slow simulated engines down by this factor")
    command.add_argument(
        "--scrape-interval", type=_positive, default=2.0, metavar="SECONDS", help="of Prometheus (default: %(default)s)"
    )
    command.add_argument("--nodes", type=int, default=2, help="number of nodes, up to 16 (default: %(default)s)")
    command.add_argument("--gpus", type=int, default=8, help="GPUs a node (default: %(default)s)")
    command.add_argument(
        "--hpa-sync",
        type=_positive,
        default=3.0,
        metavar="SECONDS",
        help="period of the autoscaler (default: %(default)s)",
    )
    command.add_argument(
        "--hpa-downscale",
        type=_positive,
        default=10.0,
        metavar="SECONDS",
        help="how long the autoscaler waits before it scales down (default: %(default)s)",
    )
    command.set_defaults(run=up)


def _add_parts(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--with",
        dest="parts",
        type=_parts,
        default="all",
        metavar="PARTS",
        help=f"comma-separated parts: {', '.join(NEEDS)}; or all (the default). `control` alone is the quickest; "
        "a part brings those that it needs",
    )


def _add_name(command: argparse.ArgumentParser) -> None:
    command.add_argument("--name", type=_name, default=DEFAULT_NAME, help="the cluster's name (default: %(default)s)")


if __name__ == "__main__":
    sys.exit(main())
