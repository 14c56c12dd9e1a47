"""/metrics, for Prometheus: the figures of the word `mntr`, those of the process, the pauses of the garbage
collector, and of the native API what `znoded.admin.api.metrics` has.

docs/metrics.md names each with its unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource

from znoded.admin.view import WordSource, figures, is_serving
from znoded.garbage_collection import GarbageCollection

PREFIX = "znoded_"
#: Figures that are called a count and go down as well.
GAUGES_THAT_COUNT = (
    "znode_count", "watch_count", "ephemerals_count", "open_file_descriptor_count", "max_file_descriptor_count",
)  # fmt: skip


def is_counter(key: str) -> bool:
    """Whether a figure of `mntr` only ever grows while the process lives."""
    if key in GAUGES_THAT_COUNT:
        return False
    return key.startswith("packets_") or key.endswith(("_count", "_expired", "_rejected"))


class MemberCollector(Collector):
    """Turns the figures of a member into metrics when they are asked for; nothing is kept in between."""

    def __init__(self, words: WordSource, garbage: GarbageCollection) -> None:
        self._words = words
        self._garbage = garbage

    def collect(self) -> Iterator[Metric]:
        texts = {}
        yield GaugeMetricFamily(PREFIX + "serving", "1 while clients are answered", float(is_serving(self._words)))
        for key, text in figures(self._words).items():
            try:
                value = float(text)
            except ValueError:
                texts[key] = text
                continue
            family = CounterMetricFamily if is_counter(key) else GaugeMetricFamily
            yield family(PREFIX + key, f"zk_{key} of the word mntr", value)
        yield InfoMetricFamily(PREFIX + "member", "What is text in the word mntr", texts)
        yield from self._pauses()

    def _pauses(self) -> Iterator[Metric]:
        count = CounterMetricFamily(PREFIX + "gc_collections", "Garbage collections", labels=["generation"])
        total = CounterMetricFamily(PREFIX + "gc_pause_seconds", "Time spent in them", labels=["generation"])
        longest = GaugeMetricFamily(PREFIX + "gc_longest_pause_seconds", "The longest of them", labels=["generation"])
        for generation, pauses in enumerate(self._garbage.pauses):
            count.add_metric([str(generation)], pauses.count)
            total.add_metric([str(generation)], pauses.total_s)
            longest.add_metric([str(generation)], pauses.longest_s)
        yield from (count, total, longest)


class Metrics(Resource):
    """The text format of Prometheus."""

    isLeaf = True

    def __init__(self, words: WordSource, garbage: GarbageCollection, *others: Collector) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        for collector in (MemberCollector(words, garbage), *others):
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def render_GET(self, request: IRequest) -> bytes:
        request.setHeader(b"content-type", CONTENT_TYPE_LATEST.encode())
        return generate_latest(self._registry)
