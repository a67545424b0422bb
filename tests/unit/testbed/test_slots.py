"""Ports and addresses: each cluster has its own, and gives them back."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import pytest

from tests.testbed.errors import ClusterError
from tests.testbed.slots import NUMBERS, PORT_NAMES, PORTS_A_SLOT, Slot, claim_slot, first_port


def test_clusters_get_different_numbers_and_a_freed_one_is_used_again(cache: Path) -> None:
    one, two = claim_slot(engine_ports=False), claim_slot(engine_ports=False)
    assert one.number != two.number
    one.release()
    three = claim_slot(engine_ports=False)
    assert three.number == one.number
    two.release()
    three.release()


def test_a_number_whose_port_somebody_uses_is_passed_over(cache: Path) -> None:
    free = claim_slot(engine_ports=False)
    free.release()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", free.port("spare")))
        other.listen()
        claimed = claim_slot(engine_ports=False)
    assert claimed.number > free.number
    claimed.release()


def test_a_server_on_all_addresses_in_the_way_of_engines_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr("tests.testbed.slots.ENGINE_PORTS", (port,))
        with pytest.raises(ClusterError, match=rf"port {port} is in use on all addresses(?s:.*)ss -ltnp"):
            claim_slot(engine_ports=True)


def test_no_two_slots_share_a_port_or_an_address() -> None:
    ports = [first_port(number) + offset for number in NUMBERS for offset in range(PORTS_A_SLOT)]
    assert len(set(ports)) == len(ports)
    assert max(ports) < 32_768, "Linux takes ports of outgoing connections from there on"
    assert len({Slot(number).pod_range for number in NUMBERS}) == len(NUMBERS)


def test_a_name_keeps_its_port() -> None:
    slot = Slot(NUMBERS.start)
    assert slot.port("operator-metrics") == slot.port("operator-metrics")
    assert (
        len({slot.port(name) for name in (*PORT_NAMES, "operator-metrics", "operator-health")}) == len(PORT_NAMES) + 2
    )


def test_more_names_than_ports_are_refused() -> None:
    slot = Slot(NUMBERS.start)
    with pytest.raises(ClusterError, match="no port left"):
        [slot.port(f"name-{index}") for index in range(PORTS_A_SLOT)]


@pytest.mark.parametrize("count", [1, 2, 16])
def test_nodes_share_the_slots_addresses_without_overlap(count: int) -> None:
    slot = Slot(20)
    ranges = [ipaddress.ip_network(each) for each in slot.node_ranges(count)]
    assert all(each.subnet_of(ipaddress.ip_network("127.20.0.0/16")) for each in ranges)  # type: ignore[arg-type]
    assert not any(a.overlaps(b) for a in ranges for b in ranges if a is not b)


@pytest.mark.parametrize("count", [0, 17])
def test_an_impossible_number_of_nodes_is_refused(count: int) -> None:
    with pytest.raises(ClusterError, match="1 to 16"):
        Slot(20).node_ranges(count)
