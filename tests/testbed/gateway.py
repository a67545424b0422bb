"""A stand-in for the gateway in front of services: it exports how many requests it holds for each, as the test says."""

from __future__ import annotations

from tests.testbed.alerting import values
from tests.testbed.cluster import Cluster
from tests.testbed.pages import Pages


class Gateway(Pages):
    """Scraped by the cluster's Prometheus as job ``gateway``; use it as a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.requests: dict[str, int] = {}
        """By service, exported as ``gateway_requests{service="…"}``."""
        self.texts["/metrics"] = self._page
        cluster.add_scrape_target("gateway", self.address)

    def holds(self, service: str, count: int) -> None:
        """Have it hold so many requests for a service, and wait until Prometheus knows."""
        self.requests[service] = count
        query = f'gateway_requests{{service="{service}"}}'
        self._cluster.wait_until(f"{count} in {query}", lambda: values(self._cluster, query) == [str(count)])

    def _page(self) -> str:
        held = [f'gateway_requests{{service="{name}"}} {count}\n' for name, count in self.requests.items()]
        return "".join(["# TYPE gateway_requests gauge\n", *held])
