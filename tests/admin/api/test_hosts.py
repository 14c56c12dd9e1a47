"""A page in a browser does not get in, whatever its name is made to point to."""

from __future__ import annotations

import pytest

from tests.admin.api.house import ApiHouse
from tests.test_config import problems
from znoded.admin.hosts import is_known

LOOPBACK = ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"]
ADDRESSES = ["127.0.0.1", "127.0.0.1:2380", "10.1.2.3:80", "[::1]:2380", "[fe80::1]"]
LOCAL_NAMES = ["localhost", "LOCALHOST:2380", "localhost.:2380", "api.localhost"]
STRANGE = ["evil.example", "evil.example:2380", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"]


def code(house: ApiHouse, host: str, to: str) -> str:
    """The error of a get of the root, if there is one."""
    client = house.dial(to=to)
    client.send("get", {"key": "/"}, headers={"Host": host})
    house.settle()
    status, content = client.answer()
    assert status in (200, 421)
    return str(content.get("error", {}).get("code", ""))


@pytest.mark.parametrize("to", LOOPBACK)
@pytest.mark.parametrize("host", STRANGE)
def test_a_strange_name_is_refused_on_loopback(house: ApiHouse, host: str, to: str) -> None:
    assert code(house, host, to) == "wrong_host"


@pytest.mark.parametrize("host", [*ADDRESSES, *LOCAL_NAMES])
def test_addresses_and_localhost_are_known(house: ApiHouse, host: str) -> None:
    assert code(house, host, "127.0.0.1") == ""


def test_other_listeners_have_names_that_nobody_knows(house: ApiHouse) -> None:
    assert code(house, "evil.example", "192.0.2.7") == ""


@pytest.mark.parametrize("to", ["127.0.0.1", "192.0.2.7"])
def test_with_names_configured_only_these_are_known(to: str) -> None:
    house = ApiHouse(**{"api.hosts": ["ZNoded.example.org"]})
    assert code(house, "znoded.example.org:2380", to) == ""
    assert code(house, "127.0.0.1", to) == ""
    assert code(house, "evil.example", to) == "wrong_host"


def test_a_stream_is_refused_as_well(house: ApiHouse) -> None:
    client = house.dial(to="127.0.0.1")
    client.send("watch?key=/", headers={"Host": "evil.example"})
    house.settle()
    assert client.answer()[1]["error"]["code"] == "wrong_host"
    assert len(house.site.feed) == 0


def test_of_several_names_all_have_to_be_known() -> None:
    class Address:
        host = "127.0.0.1"

    assert is_known([], (), Address())
    assert is_known([b""], (), Address())
    assert not is_known([b"localhost", b"evil.example"], (), Address())


def test_a_unix_socket_has_no_name() -> None:
    assert is_known([b"anything"], (), object())


def test_a_page_cannot_send_what_needs_no_permission(house: ApiHouse) -> None:
    """As a form does: such a request is sent to strange hosts without asking them first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        client = house.dial()
        client.send("get", {"key": "/"}, headers={"Content-Type": kind})
        house.settle()
        assert client.answer()[1]["error"]["field"] == "Content-Type"


def test_a_name_is_configured_without_a_port() -> None:
    assert "api.hosts[0]" in problems({"api": {"hosts": ["znoded.example.org:80"]}})
