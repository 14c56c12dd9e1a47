"""Any bytes from any number of clients: nothing escapes, the tree stays whole, and an honest client does not notice.

An exception that escapes from `dataReceived` or from the log fails these tests as it is.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.frames import hostile_frames, random_pieces
from tests.hostile.invariants import check_memory, check_tree
from tests.jute.factory import acl, i4, request, string, vector
from tests.server.harness import Client, House, set_data
from znoded.jute.ops import Op
from znoded.server import pipeline
from znoded.server.turns import TURN_S

HONEST_ACL = vector(acl(31, b"auth", b""))
CLIENTS = 4
ROUNDS = 250


class HonestClient:
    """Works below /honest, which others may not touch, and knows what every answer must be."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._client = house.client()
        self._version = 0
        auth = request(-4, Op.AUTH, i4(0), string(b"digest"), string(b"honest:secret"))
        creates = [
            request(xid, Op.CREATE, string(path), string(b"0"), HONEST_ACL, i4(0))
            for xid, path in ((1, b"/honest"), (2, b"/honest/node"))
        ]
        watch = request(3, Op.ADD_WATCH, string(b"/honest"), i4(1))
        self._client.send(auth, *creates, watch)
        house.replica.commit()
        assert self._client.replies() == [(-4, 0), (1, 0), (2, 0), (3, 0)]

    def work(self) -> None:
        """Write, read, and be told of the write, in that order and of nothing else."""
        self._version += 1
        data = b"%d" % self._version
        self._client.send(
            set_data(1, b"/honest/node", data),
            request(2, Op.GET_DATA, string(b"/honest/node"), b"\0"),
            request(3, Op.GET_CHILDREN, string(b"/honest"), b"\0"),
        )
        self._house.replica.commit()
        event, written, read, listed = self._client.frames()
        assert event[16:] == i4(3) + i4(3) + string(b"/honest/node")
        assert written[:4] + written[12:16] == i4(1) + i4(0)
        assert read.startswith(i4(2))
        assert read[16:].startswith(string(data))
        assert int.from_bytes(read[16 + 4 + len(data) + 32 :][:4], "big") == self._version
        assert listed[16:] == i4(1) + string(b"node")
        assert not self._client.is_closed


class Attack:
    """Several connections that send whatever comes into a random mind."""

    def __init__(self, random: Random, house: House) -> None:
        self._random = random
        self._house = house
        self._clients = [house.connect() for _ in range(CLIENTS)]

    def go_on(self) -> None:
        """One client sends, stops or begins to read, breaks off or comes back."""
        random = self._random
        at = random.randrange(CLIENTS)
        client = self._clients[at]
        if client.is_closed or random.random() < 0.02:
            client.drop()
            self._clients[at] = client = self._house.connect()
        if random.random() < 0.05 and client.transport.producer is not None and not client.connection.is_blocked:
            client.transport.block()
        elif client.connection.is_blocked and random.random() < 0.3:
            client.transport.unblock()
        self._send(client)
        check_memory(self._house.member, client.connection)
        client.transport.clear()

    def _session(self) -> tuple[int, bytes]:
        """A session to take over; the password of the oldest, which is the honest client's, is not known."""
        honest, *others = self._house.member.tree.sessions.values()
        session = self._random.choice((honest, *others))
        return session.id, bytes(16) if session is honest else session.password

    def _send(self, client: Client) -> None:
        random = self._random
        if client.connection.session_id == 0 and random.random() < 0.9:
            client.shake(*self._session() if random.random() < 0.1 else ())
            return
        for piece in random_pieces(random, hostile_frames(random)):
            if client.is_closed:
                return
            client.send(piece)


@pytest.mark.parametrize("turn_s", [TURN_S, -1.0])
@pytest.mark.parametrize("seed", range(6))
def test_hostile_clients_and_an_honest_one(seed: int, turn_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "TURN_S", turn_s)  # at -1 every request but the quickest ends its client's turn
    random = Random(seed)
    house = House(**{"limits.frame_bytes": 4096, "limits.outstanding_per_connection": 20})
    honest = HonestClient(house)
    attack = Attack(random, house)
    for _ in range(ROUNDS):
        for _ in range(random.randint(1, 6)):
            attack.go_on()
        if random.random() < 0.5:
            house.replica.commit(random.randint(0, 5))
        house.replica.commit()
        honest.work()
    check_tree(house.member.tree)


@given(st.lists(st.binary(max_size=200), max_size=6), st.booleans())
@settings(max_examples=150)
def test_any_bytes_in_any_pieces(pieces: list[bytes], has_session: bool) -> None:
    house = House()
    client = house.client() if has_session else house.connect()
    for piece in pieces:
        if not client.is_closed:
            client.send(piece)
    house.replica.commit()
    check_memory(house.member, client.connection)
    check_tree(house.member.tree)
    client.drop()
    assert len(house.member.admission) == 0
