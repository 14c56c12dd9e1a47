"""What the admin pages answer, asked without a socket."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.error import UnsupportedMethod
from twisted.web.http_headers import Headers
from twisted.web.resource import getChildForRequest
from twisted.web.test.requesthelper import DummyRequest

from znoded.admin.backup import BackUp
from znoded.admin.site import AdminSite, admin_site
from znoded.garbage_collection import GarbageCollection

MNTR = """\
zk_version\t3.9.5-0, built on now
zk_server_state\tstandalone
zk_packets_sent\t7
zk_znode_count\t5
zk_avg_latency\t0.5
"""


class CannedWords:
    """A member that says the same each time it is asked."""

    def __init__(self) -> None:
        self.serving = True

    def render(self, word: bytes) -> bytes:
        if not self.serving:
            return b"null" if word == b"isro" else b"This ZooKeeper instance is not currently serving requests\n"
        return {
            b"isro": b"rw",
            b"ruok": b"imok",
            b"mntr": MNTR.encode(),
            b"conf": b"clientPort=2181\ndataDir=/data=1\n",
            b"srvr": b"Zookeeper version: 3.9.5\nLatency min/avg/max: 0/0.0/0\nNode count: 5\n",
            b"cons": b" /127.0.0.1:5[1](queued=0,recved=1,sent=0)\n\n",
        }[word]


@pytest.fixture
def words() -> CannedWords:
    return CannedWords()


@pytest.fixture
def site(words: CannedWords) -> AdminSite:
    return admin_site(words, GarbageCollection(Clock()), lambda: succeed(""), lambda: succeed("/data.backup-5"))


def post_backup(back_up: BackUp) -> tuple[int, dict[str, Any]]:
    """Status and answer of a backup that was asked for."""
    site = admin_site(CannedWords(), GarbageCollection(Clock()), lambda: succeed(""), back_up)
    request: Any = DummyRequest([b"backup"])
    request.method = b"POST"
    request.render(getChildForRequest(site.resource, request))
    return request.responseCode or 200, json.loads(b"".join(request.written))


def test_members_are_told_as_the_member_knows_them() -> None:
    told = {"member": 1, "leader": 2, "term": 7, "members": [{"number": 1}]}
    nothing = partial(succeed, "")
    site = admin_site(CannedWords(), GarbageCollection(Clock()), nothing, nothing, lambda: told)
    status, body = get(site, "members")
    assert (status, json.loads(body)) == (200, told)


def test_a_member_that_has_nothing_to_tell_of_its_cell_is_not_available() -> None:
    nothing = partial(succeed, "")
    site = admin_site(CannedWords(), GarbageCollection(Clock()), nothing, nothing, lambda: {"error": "it waits"})
    status, body = get(site, "members")
    assert (status, json.loads(body)) == (503, {"error": "it waits"})


def test_a_member_that_stands_alone_has_no_members(site: AdminSite) -> None:
    assert get(site, "members")[0] == 404


def test_a_backup_answers_with_its_path() -> None:
    assert post_backup(lambda: succeed("/data.backup-5")) == (200, {"path": "/data.backup-5", "error": None})


def test_a_backup_that_fails_says_why() -> None:
    assert post_backup(lambda: fail(OSError("no space"))) == (500, {"path": None, "error": "no space"})


def test_a_backup_whose_asker_left_is_made_all_the_same() -> None:
    made: Deferred[str] = Deferred()
    site = admin_site(CannedWords(), GarbageCollection(Clock()), lambda: succeed(""), lambda: made)
    request: Any = DummyRequest([b"backup"])
    request.method = b"POST"
    request.render(getChildForRequest(site.resource, request))
    request.processingFailed(Failure(ConnectionDone()))
    made.callback("/data.backup-5")
    assert request.written == []
    assert not request.finished


def test_looking_at_the_backup_page_makes_none(site: AdminSite) -> None:
    with pytest.raises(UnsupportedMethod):
        get(site, "backup")


@pytest.mark.parametrize(
    ("method", "host", "origin", "status"),
    [
        (b"GET", b"localhost:8080", None, 200),
        (b"GET", b"127.0.0.1:8080", b"http://127.0.0.1:8080", 200),
        (b"GET", b"evil.example:8080", None, 403),
        (b"POST", b"127.0.0.1:8080", None, 200),
        (b"POST", b"127.0.0.1:8080", b"http://evil.example", 403),
        (b"POST", b"127.0.0.1:8080", b"null", 403),
    ],
)
def test_a_page_of_a_browser_gets_nothing_and_makes_no_backup(
    site: AdminSite, method: bytes, host: bytes, origin: bytes | None, status: int
) -> None:
    request: Any = DummyRequest([b"backup" if method == b"POST" else b"healthz"])
    request.method = method
    request.sitepath = []
    request.getHost = lambda: IPv4Address("TCP", "127.0.0.1", 8080)
    request.requestHeaders.setRawHeaders(b"host", [host])
    if origin is not None:
        request.requestHeaders.setRawHeaders(b"origin", [origin])
    request.render(site.getResourceFor(request))
    assert (request.responseCode or 200) == status


def get(site: AdminSite, path: str) -> tuple[int, str]:
    """Status and text of a page."""
    request: Any = DummyRequest([part.encode() for part in path.split("/")])
    request.requestHeaders = Headers()
    request.render(getChildForRequest(site.resource, request))
    return request.responseCode or 200, b"".join(request.written).decode()


def get_json(site: AdminSite, path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(get(site, path)[1])
    return content


def test_the_process_is_healthy_while_it_starts(site: AdminSite, words: CannedWords) -> None:
    words.serving = False
    assert get(site, "healthz") == (200, "ok\n")


def looked_at(readiness: Deferred[str]) -> DummyRequest:
    """The request of a probe, given what it is told."""
    site = admin_site(CannedWords(), GarbageCollection(Clock()), lambda: readiness, lambda: succeed(""))
    request = DummyRequest([b"readyz"])
    request.render(getChildForRequest(site.resource, request))
    return request


def test_a_member_that_lacks_nothing_is_ready(site: AdminSite) -> None:
    assert get(site, "readyz") == (200, "ready\n")


def test_a_member_that_is_not_ready_says_what_is_missing() -> None:
    request = looked_at(succeed("no leader is known"))
    assert (request.responseCode, b"".join(request.written)) == (503, b"not ready: no leader is known\n")


def test_a_probe_is_answered_when_the_member_knows() -> None:
    readiness: Deferred[str] = Deferred()
    request = looked_at(readiness)
    assert not request.finished
    readiness.callback("")
    assert request.written == [b"ready\n"]
    assert request.finished


def test_a_probe_that_gave_up_is_not_answered() -> None:
    readiness: Deferred[str] = Deferred()
    request = looked_at(readiness)
    request.processingFailed(Failure(ConnectionDone()))
    readiness.callback("")
    assert request.written == []


def test_a_page_that_is_not_there_is_not_found(site: AdminSite) -> None:
    assert get(site, "nothing/at/all") == (
        404,
        "No such page. There are /healthz, /readyz, /metrics, /commands, /backup; POST to /backup.\n",
    )


def test_where_a_page_is_not_found_the_members_of_a_cell_are_named() -> None:
    nothing = partial(succeed, "")
    site = admin_site(CannedWords(), GarbageCollection(Clock()), nothing, nothing, dict)
    assert "/members" in get(site, "nothing")[1]


def test_metrics_are_the_figures_of_mntr(site: AdminSite) -> None:
    families = {family.name: family for family in text_string_to_metric_families(get(site, "metrics")[1])}
    assert families["znoded_znode_count"].samples[0].value == 5
    assert families["znoded_znode_count"].type == "gauge"
    assert families["znoded_packets_sent"].type == "counter"
    assert families["znoded_packets_sent"].samples[0].value == 7
    assert families["znoded_avg_latency"].samples[0].value == 0.5
    assert families["znoded_member_info"].samples[0].labels["server_state"] == "standalone"
    assert families["znoded_serving"].samples[0].value == 1
    assert families["znoded_gc_collections"].samples[0].value == 0
    assert "process_resident_memory_bytes" in families


def test_metrics_say_so_while_the_member_does_not_serve(site: AdminSite, words: CannedWords) -> None:
    words.serving = False
    status, text = get(site, "metrics")
    assert status == 200
    assert "znoded_serving 0.0" in text
    assert "znoded_znode_count" not in text


def test_commands_are_listed(site: AdminSite) -> None:
    assert {"mntr", "monitor", "ruok"} <= set(get_json(site, "commands")["commands"])


@pytest.mark.parametrize("name", ["mntr", "monitor"])
def test_a_command_has_the_figures_under_both_of_its_names(site: AdminSite, name: str) -> None:
    content = get_json(site, f"commands/{name}")
    assert content["command"] == name
    assert content["error"] is None
    assert content["packets_sent"] == 7
    assert content["avg_latency"] == 0.5
    assert content["server_state"] == "standalone"


def test_a_command_made_of_keys_and_values_has_them_as_fields(site: AdminSite) -> None:
    assert get_json(site, "commands/conf")["dataDir"] == "/data=1"
    assert get_json(site, "commands/srvr")["Node count"] == 5


def test_any_other_command_has_lines(site: AdminSite) -> None:
    assert get_json(site, "commands/ruok")["lines"] == ["imok"]
    assert get_json(site, "commands/cons")["lines"] == [" /127.0.0.1:5[1](queued=0,recved=1,sent=0)"]


@pytest.mark.parametrize("name", ["wchp", "dump", "crst", "..%2fetc"])
def test_a_word_that_can_hurt_is_no_command(site: AdminSite, name: str) -> None:
    assert get(site, f"commands/{name}")[0] == 404
