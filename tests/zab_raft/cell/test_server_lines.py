"""Members in ZooKeeper's words. What is accepted, and how it is written again, was compared with ZooKeeper 3.9.5."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.cell.server_lines import (
    BadServers,
    Member,
    NoNumber,
    Role,
    parse_joining,
    parse_leaving,
    parse_members,
    parse_server,
)

ports = st.integers(1, 65535)
hosts = st.one_of(
    st.from_regex(r"[0-9A-Za-z]([0-9A-Za-z-]{0,20}[0-9A-Za-z])?(\.[0-9A-Za-z]{1,9}){0,3}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda host: f"[{host}]"),
)
addresses = st.builds("{}:{}".format, hosts, ports)
members = st.builds(
    Member, st.integers(1, 254), addresses, addresses | st.just(""), st.sampled_from(Role), st.integers(0, 65535)
).filter(lambda member: not member.peer.endswith(f":{member.election_port}"))


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("127.0.0.1:2888:3888:participant;127.0.0.1:2181", "127.0.0.1:2888:3888:participant;127.0.0.1:2181"),
        ("h:1:2", "h:1:2:participant"),
        ("h:1:2;3", "h:1:2:participant;0.0.0.0:3"),
        ("h:1:2:OBSERVER;3", "h:1:2:observer;0.0.0.0:3"),
        ("h:1:2: observer ;3", "h:1:2:observer;0.0.0.0:3"),
        ("h:1:2:;3", "h:1:2:participant;0.0.0.0:3"),
        ("h:1:2:participant:;3", "h:1:2:participant;0.0.0.0:3"),
        ("h:1:2;", "h:1:2:participant"),
        ("h:1:2;g:3:", "h:1:2:participant;g:3"),
        ("h:01:+2;3", "h:1:2:participant;0.0.0.0:3"),
        ("[::1]:1:2;[::1]:3", "[::1]:1:2:participant;[::1]:3"),
        ("Host-Name.example:1:2;g.x:3", "Host-Name.example:1:2:participant;g.x:3"),
        ("h:1:1;3", "h:1:1001:participant;0.0.0.0:3"),
        ("h:65000:65000", "h:65000:64000:participant"),
    ],
)
def test_a_member_is_written_as_zookeeper_writes_it(spec: str, line: str) -> None:
    assert parse_server(7, spec).line == f"server.7={line}"


@pytest.mark.parametrize(
    "spec",
    [
        "", "h", "h:1", "h:1:2:voter;3", "h:1:2:observer:5;3", "h:1:2;3;4", "h:1:2;g:3:4", "[::1:1:2;3", "::1:1:2;3",
        "h:x:2;3", "h:1:2;x", "h:1:70000;3", "h:1:2;65536", "h:-1:2;3", "h:1:2; 3", ":1:2;3", "h:1:2;[::1]",
        "a b:1:2;3", "h:1:2|g:3:4;5", f"{'h' * 256}:1:2;3", "h:\u0661:2;3",
    ],
)  # fmt: skip
def test_what_is_no_member_is_refused(spec: str) -> None:
    with pytest.raises(BadServers):
        parse_server(1, spec)


def test_a_refusal_says_what_would_be_right() -> None:
    right = (
        r"server\.3=h:1 is not right: it must be HOST:PORT:ELECTION_PORT\[:participant\|:observer\];\[CLIENT_HOST:\]"
    )
    with pytest.raises(BadServers, match=right):
        parse_server(3, "h:1")


@given(members)
def test_what_is_written_is_read_again(member: Member) -> None:
    (again,) = parse_members(member.line)
    assert again.line == member.line
    assert again == (member if member.election_port else replace(member, election_port=again.election_port))


@given(members)
def test_java_clients_find_two_different_ports(member: Member) -> None:
    host, port, election_port, _ = member.line.partition("=")[2].partition(";")[0].rsplit(":", 3)
    assert port != election_port


@given(st.text(alphabet="server.=:;,|12\n #[]h", max_size=40))
def test_any_text_is_members_or_refused(text: str) -> None:
    for parse in (parse_joining, parse_leaving, parse_members):
        try:
            parse(text)
        except BadServers:
            continue


class TestJoining:
    def test_members_are_parted_by_commas(self) -> None:
        assert [member.line for member in parse_joining(" server.1=a:1:2;3 ,, server.9 = b:1:2:observer;b:3,")] == [
            "server.1=a:1:2:participant;0.0.0.0:3",
            "server.9=b:1:2:observer;b:3",
        ]

    def test_only_the_number_of_a_key_counts(self) -> None:
        assert [member.number for member in parse_joining("3=a:1:2;3,x.4=b:1:2;3")] == [3, 4]

    @pytest.mark.parametrize(
        "text", ["some thing", "server.1=", "=a:1:2;3", "server.1=a:1:2;3=4", "server.1=a:1:2", "server.1=a"]
    )
    def test_a_joiner_has_all_its_ports(self, text: str) -> None:
        with pytest.raises(BadServers):
            parse_joining(text)

    @pytest.mark.parametrize("text", ["server.x=a:1:2;3", "server.=a:1:2;3", "server.1234567890123456789=a:1:2;3"])
    def test_a_number_that_is_none_is_told_apart(self, text: str) -> None:
        with pytest.raises(NoNumber):
            parse_joining(text)


class TestLeaving:
    def test_numbers_are_parted_by_commas(self) -> None:
        assert parse_leaving(" 3, +5,,-1 ") == [3, 5, -1]
        assert parse_leaving("") == []

    @pytest.mark.parametrize("text", ["x", "1 2", "1.0", "0x1"])
    def test_anything_else_is_no_number(self, text: str) -> None:
        with pytest.raises(NoNumber):
            parse_leaving(text)


class TestMembers:
    def test_lines_end_with_newlines_or_commas(self) -> None:
        text = "server.2=b:1:2\r\nserver.1=a:1:2;3,server.3:c:1:2\n\n# a comment\nversion=1f"
        assert [member.number for member in parse_members(text)] == [1, 2, 3]

    def test_the_last_of_a_number_counts(self) -> None:
        assert [member.peer for member in parse_members("server.1=a:1:2,server.1=b:1:2")] == ["b:1"]

    def test_clients_may_be_left_out(self) -> None:
        assert [member.client for member in parse_members("server.1=a:1:2")] == [""]

    @pytest.mark.parametrize("text", ["foo=1", "server", "group.1=1:2", "weight.1=3", "server.1", "=", "server.1=a"])
    def test_other_keys_are_refused(self, text: str) -> None:
        with pytest.raises(BadServers):
            parse_members(text)

    @pytest.mark.parametrize("text", ["server.x=a:1:2", "version=", "version=xyz"])
    def test_a_number_that_is_none_is_told_apart(self, text: str) -> None:
        with pytest.raises(NoNumber):
            parse_members(text)
