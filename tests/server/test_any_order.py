"""Whatever happens to the socket, each request is answered once and in order, and its connection goes on."""

from __future__ import annotations

import random

import pytest

from tests.jute.factory import i4, request, string
from tests.server.harness import House, create, exists, get_children, get_data, ping, set_data
from tests.server.test_read_gate import GatedHouse
from znoded.jute.ops import PING_XID, Op

SEEDS = 600
STEPS = 4_000
#: From this step on the client reads all that comes.
LAST_BLOCK = 1_500
FRAME_BYTES = 2_048
KEYS = {
    "limits.outstanding_per_connection": 5,
    "limits.outstanding_bytes_per_connection": 65_536,
    "limits.frame_bytes": FRAME_BYTES,
}


def request_of(choose: random.Random, xid: int) -> bytes:
    return choose.choice(
        [
            set_data(xid, b"/a"),
            set_data(xid, b"/a", b"x" * 1_000),
            set_data(xid, b"/a", b"x" * (FRAME_BYTES + choose.choice((-20, 52, 1_000)))),  # some are refused
            get_data(xid, b"/a"),
            get_data(xid, b"/a"),
            exists(xid, b"/a"),
            get_children(xid, b"/"),
            ping(),
            request(xid, Op.AUTH, i4(0), string(b"digest"), string(b"user:password")),
            request(xid, Op.GET_ALL_CHILDREN_NUMBER, string(b"/")),
            request(xid, Op.SYNC, string(b"/")),
        ]
    )


class Run:
    """One client of one seed, and what happens to it."""

    def __init__(self, seed: int, is_gated: bool) -> None:
        self.choose = random.Random(seed)
        self.house = GatedHouse(**KEYS) if is_gated else House(**KEYS)
        self.house.member.pipeline.kept_bytes_limit = self.choose.choice((300, 5_000, 1 << 20))
        self.client = self.house.client()
        self.client.send(create(1, b"/a"))
        self.house.replica.commit()
        self.client.replies()
        frames = {xid: request_of(self.choose, xid) for xid in range(10, 10 + self.choose.randrange(5, 80))}
        self.expected = [PING_XID if frame == ping() else xid for xid, frame in frames.items()]
        self.stream = b"".join(frames.values())
        self.answered: list[int] = []
        self.is_blocked = False

    def step(self, may_block: bool) -> None:
        house, transport, action = self.house, self.client.transport, self.choose.randrange(7)
        if action <= 1 and self.stream and transport.producerState == "producing":
            size_bytes = self.choose.choice((1, 7, 40, 300, 3_000))
            part, self.stream = self.stream[:size_bytes], self.stream[size_bytes:]
            self.client.connection.dataReceived(part)
        elif action == 2 and may_block and not self.is_blocked:
            transport.block()
            self.is_blocked = True
        elif action == 3 and self.is_blocked:
            self.is_blocked = False
            transport.unblock()
        elif action == 4:
            house.replica.commit(self.choose.choice((1, 2, None)))
        elif action == 5 and isinstance(house, GatedHouse):
            house.confirm()
        elif action == 6:
            house.clock.advance(0)
        if not self.is_blocked:
            self.answered += [xid for xid, _error in self.client.replies()]

    def check(self) -> None:
        connection = self.client.connection
        assert not self.client.is_closed
        assert self.answered == self.expected
        self.house.clock.advance(0)
        assert (connection.out_bytes, connection.waiting_bytes) == (0, 0)
        assert not connection.pending
        assert self.client.transport.producerState == "producing"


@pytest.mark.parametrize("is_gated", [False, True], ids=["alone", "in a cell"])
def test_each_request_is_answered_once_and_in_order(is_gated: bool) -> None:
    for seed in range(SEEDS):
        run = Run(seed, is_gated)
        for step in range(STEPS):
            run.step(may_block=step < LAST_BLOCK)
            if len(run.answered) >= len(run.expected) and not run.stream and not run.is_blocked:
                break
        try:
            run.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
