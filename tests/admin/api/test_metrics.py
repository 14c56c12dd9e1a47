"""What /metrics tells of the API."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.admin.api.house import ApiHouse
from tests.admin.api.test_streams import watch
from tests.admin.api.test_unread import MIB, block_after_each_write
from znoded.admin.api.metrics import ApiCollector
from znoded.admin.api.site import ApiSite


def figures(api: ApiSite | None) -> dict[tuple[str, ...], float]:
    """Each metric by its name and the values of its labels."""
    registry = CollectorRegistry()
    registry.register(ApiCollector(lambda: api))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples if not sample.name.endswith("_created")]
    told: dict[tuple[str, ...], float] = {}
    for sample in samples:
        labels = [sample.labels[name] for name in sorted(sample.labels)]
        told[sample.name.removeprefix("znoded_api_"), *labels] = sample.value
    return told


def test_requests_are_counted_by_operation_and_result(house: ApiHouse) -> None:
    house.put("/a")
    house.done("get", {"key": "/a"})
    assert house.refused("get", {"key": "/b"}) == "no_such_key"
    assert house.refused("get", {}) == "bad_request"
    assert house.refused("nothing") == "no_such_page"
    house.done("openapi.json")
    watch(house, "prefix=/a")
    told = {key[1:]: value for key, value in figures(house.site).items() if key[0] == "requests_total"}
    assert told == {
        ("txn", "ok"): 1,
        ("get", "ok"): 1,
        ("get", "no_such_key"): 1,
        ("get", "bad_request"): 1,
        ("none", "no_such_page"): 1,
        ("openapi", "ok"): 1,
        ("watch", "ok"): 1,
    }


def test_what_was_refused_before_it_was_read_is_counted_too(house: ApiHouse) -> None:
    house.dial().channel.dataReceived(b"POST /v1/txn HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
    assert figures(house.site)["requests_total", "none", "value_too_large"] == 1


def test_a_client_that_goes_away_and_one_that_waits_are_told_apart(house: ApiHouse) -> None:
    session = house.session(40_000)
    ask = {"session": session, "lock": "/l"}
    house.done("lock/acquire", ask)
    waiting = house.dial()
    waiting.send("lock/acquire", ask)
    house.settle()
    assert figures(house.site)["waiting_acquires",] == 1
    waiting.drop()
    house.settle()
    told = figures(house.site)
    assert told["waiting_acquires",] == 0
    assert told["requests_total", "lock_acquire", "ok"] == 1
    assert told["requests_total", "lock_acquire", "client_gone"] == 1


def test_streams_and_connections_are_counted_while_they_are_open(house: ApiHouse) -> None:
    clients = [watch(house, "prefix=/a") for _ in range(3)]
    told = figures(house.site)
    assert (told["streams",], told["connections",]) == (3, 3)
    clients[0].drop()
    house.settle()
    told = figures(house.site)
    assert (told["streams",], told["connections",]) == (2, 2)


def test_the_lag_is_that_of_the_stream_furthest_behind(house: ApiHouse) -> None:
    quick, slow = watch(house, "prefix=/a"), watch(house, "prefix=/a")
    assert figures(house.site)["stream_lag",] == 0
    block_after_each_write(slow)
    for _ in range(3):
        house.put("/a")
    assert figures(house.site)["stream_lag",] == 3
    house.put("/other")
    slow.drop()
    house.settle()
    assert figures(house.site)["stream_lag",] == 0
    assert quick.lines()


def test_a_stream_that_catches_up_lags(house: ApiHouse) -> None:
    after = house.put("/a")
    house.put("/a")
    house.dial().send(f"watch?prefix=/a&after={after}")
    assert figures(house.site)["stream_lag",] == 1
    house.settle()
    assert figures(house.site)["stream_lag",] == 0


def test_what_is_not_read_and_who_is_cut_for_it_are_told() -> None:
    house = ApiHouse(**{"limits.api_unread_bytes": MIB})
    client = watch(house, "prefix=/a")
    block_after_each_write(client)
    house.put("/a", bytes(500_000))
    told = figures(house.site)
    assert MIB > told["unread_bytes",] > 500_000
    assert told["slow_readers_cut_total",] == 0
    house.put("/a", bytes(500_000))
    told = figures(house.site)
    assert (told["unread_bytes",], told["slow_readers_cut_total",]) == (0, 1)


def test_an_api_that_is_not_served_has_no_figures() -> None:
    assert figures(None) == {}
