"""Give each cluster of this machine a number of its own, and with it its ports and its pod addresses.

Slot 17 owns 127.17.0.0/16 and 32 ports of 127.0.0.1. The number is held by a lock that every process of the cluster
inherits, so that it is free again exactly when the last of them has ended, however that came about.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed.errors import ClusterError
from tests.testbed.places import cache_folder

NUMBERS = range(16, 112)  # 127.0.0.0/12 is left alone: other software on a machine likes low loopback addresses.
PORTS_A_SLOT = 32
FIRST_PORT = 21_000  # The last port stays below 32768, where Linux takes ports of outgoing connections from.
ENGINE_PORTS = (8000, 8001)
"""Ports that engines open on every pod address; a server that has one of them on all addresses is in the way."""

PORT_NAMES = (
    "etcd",
    "etcd-peer",
    "apiserver",
    "controllers",
    "scheduler",
    "prometheus",
    "keda-metrics",
    "keda-health",
    "keda-grpc",
    "keda-adapter",
    "keda-adapter-metrics",
)
"""Ports of the cluster's own processes, in the order of their numbers; the rest are given out by any other name."""

NODE_PREFIX = 20  # 4094 addresses a node, far more than pods; sixteen such ranges fill a slot.


@dataclass(slots=True)
class Slot:
    """A number and what comes with it. The lock lasts as long as the descriptor is open in any process."""

    number: int
    lock: int | None = None
    """A file descriptor to be inherited; None in a process that only looks at somebody else's cluster."""
    names: list[str] = field(default_factory=lambda: list(PORT_NAMES))

    @property
    def pod_range(self) -> str:
        return f"127.{self.number}.0.0/16"

    def node_ranges(self, count: int) -> list[str]:
        """One range a node, without overlap: kwok counts addresses by range, so two nodes of one range would hand out
        the same.

        Raises:
            ClusterError: more nodes than the slot has ranges.
        """
        ranges = list(ipaddress.ip_network(self.pod_range).subnets(new_prefix=NODE_PREFIX))
        if not 0 < count <= len(ranges):
            raise ClusterError(f"{count} nodes are not possible", f"Ask for 1 to {len(ranges)}.")
        return [str(each) for each in ranges[:count]]

    def port(self, name: str) -> int:
        """The port of that name, the same one each time it is asked for.

        Raises:
            ClusterError: all ports of the slot are given away.
        """
        if name not in self.names:
            if len(self.names) == PORTS_A_SLOT:
                raise ClusterError(f"this cluster has no port left for {name}", f"It has {PORTS_A_SLOT} ports.")
            self.names.append(name)
        return first_port(self.number) + self.names.index(name)

    def release(self) -> None:
        """Let go of the lock in this process."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def first_port(number: int) -> int:
    """The lowest port of a slot."""
    return FIRST_PORT + (number - NUMBERS.start) * PORTS_A_SLOT


def claim_slot(*, engine_ports: bool) -> Slot:
    """Take the first number that is free and whose ports nobody has opened.

    ``engine_ports`` also asks that engines can open theirs on its addresses.

    Raises:
        ClusterError: none is left, or a server of this machine holds a port of the engines on all addresses.
    """
    folder = cache_folder() / "slots"
    folder.mkdir(parents=True, exist_ok=True)
    for number in NUMBERS:
        lock = _try_lock(folder / str(number))
        if lock is None:
            continue
        taken = [port for port in ENGINE_PORTS if engine_ports and not can_listen(f"127.{number}.0.1", port)]
        if taken:
            os.close(lock)
            raise ClusterError(
                f"port {taken[0]} is in use on all addresses of this machine, and simulated engines need it on theirs",
                f"Find its server with `ss -ltnp 'sport = :{taken[0]}'`, and end it or bind it to one address.",
            )
        start = first_port(number)
        if all(can_listen("127.0.0.1", port) for port in range(start, start + PORTS_A_SLOT)):
            return Slot(number, lock)
        os.close(lock)
    raise ClusterError(
        f"all {len(NUMBERS)} places for clusters are taken",
        "See `python -m tests.testbed status`, and end those you no longer need with `down`.",
    )


def can_listen(address: str, port: int) -> bool:
    """Whether a server could open this address and port at this moment."""
    with socket.socket() as probe:
        # As servers do: connections that were closed a moment ago must not make a port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen()
        except OSError:
            return False
    return True


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
