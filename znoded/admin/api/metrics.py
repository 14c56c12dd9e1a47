"""The figures of the API for /metrics. docs/metrics.md names each with its unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from znoded.admin.api.site import ApiSite

PREFIX = "znoded_api_"
GAUGES: dict[str, tuple[str, Callable[[ApiSite], int]]] = {
    "connections": ("Open connections", lambda api: api.connections_count),
    "streams": ("Open watches and observers", lambda api: len(api.feed)),
    "stream_lag": ("Revisions that the stream furthest behind has yet to be told of", lambda api: api.feed.lag),
    "waiting_acquires": ("Contenders in line for their turn", lambda api: api.locks.waiting_count),
    "unread_bytes": ("Bytes held for clients that have not read them", lambda api: api.unread.total_bytes),
}


class ApiCollector(Collector):
    """Looks at the API when it is asked; there is nothing to tell of one that is not served."""

    def __init__(self, api: Callable[[], ApiSite | None]) -> None:
        self._api = api

    def collect(self) -> Iterator[Metric]:
        api = self._api()
        if api is None:
            return
        requests = CounterMetricFamily(PREFIX + "requests", "Answered requests", labels=["operation", "result"])
        for (operation, result), count in sorted(api.requests.items()):
            requests.add_metric([operation, result], count)
        yield requests
        yield CounterMetricFamily(
            PREFIX + "slow_readers_cut", "Clients cut off for what they had not read", api.unread.cut_count
        )
        for name, (meaning, value) in GAUGES.items():
            yield GaugeMetricFamily(PREFIX + name, meaning, value(api))
