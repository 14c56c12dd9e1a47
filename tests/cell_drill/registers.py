"""Clients that read and write a few znodes all at once, one request at a time, and record what they saw."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from tests.cell_drill.client import Client
from tests.cell_drill.gaps import Acknowledgements
from tests.cell_drill.linearizability import Operation, check_register
from tests.cell_drill.wire import Stat, data_of, path_body, stat_of
from tests.crash.raw_client import GET_DATA, SET_DATA, set_data_body

INITIAL = b"initial"
WRITES_SHARE = 0.5


@dataclass
class Register:
    """A znode that all write, with its history."""

    path: bytes
    history: list[Operation] = field(default_factory=list)

    def check(self, data: bytes, stat: Stat) -> int:
        """Compare the history, and what is there at last, with what a register may do. Returns how many operations."""
        now_s = time.monotonic()
        self.history.append(Operation(False, data, now_s, now_s, stat.version))
        check_register(INITIAL, self.history)
        acknowledged = sum(each.is_write and each.version is not None for each in self.history)
        sent = sum(each.is_write for each in self.history)
        assert acknowledged <= stat.version <= sent, (
            f"{self.path!r} is at version {stat.version} after {acknowledged} acknowledged of {sent} writes"
        )
        return len(self.history)


class RegisterUser:
    """Reads and writes registers at random."""

    def __init__(self, client: Client, acknowledgements: Acknowledgements) -> None:
        self.client = client
        self._acknowledgements = acknowledgements
        self._written = 0

    async def use_one(self, registers: list[Register]) -> None:
        """One operation. A loss of the connection leaves its outcome unknown."""
        register = random.choice(registers)
        try:
            if random.random() < WRITES_SHARE:
                await self._write(register)
            else:
                await self._read(register)
        except ConnectionError:
            pass

    async def _write(self, register: Register) -> None:
        self._written += 1
        connection = await self.client.connection()
        operation = Operation(True, b"%s %d" % (self.client.name.encode(), self._written), time.monotonic())
        register.history.append(operation)
        reply = await connection.request(SET_DATA, set_data_body(register.path, operation.value))
        assert reply.error == 0, f"a write of {register.path!r} was answered with error {reply.error}"
        operation.responded_s = time.monotonic()
        operation.version = stat_of(reply.body).version
        self._acknowledgements.add()

    async def _read(self, register: Register) -> None:
        connection = await self.client.connection()
        invoked_s = time.monotonic()
        reply = await connection.request(GET_DATA, path_body(register.path))
        assert reply.error == 0, f"a read of {register.path!r} was answered with error {reply.error}"
        data, stat = data_of(reply.body)
        register.history.append(Operation(False, data, invoked_s, time.monotonic(), stat.version))
