"""Clients that create sequential znodes below one parent, ephemeral ones among them, and delete some of theirs."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from tests.cell_drill.client import Client
from tests.cell_drill.gaps import Acknowledgements
from tests.cell_drill.sequences import Named, check_names
from tests.cell_drill.wire import DELETE, EPHEMERAL_SEQUENTIAL, SEQUENTIAL, delete_body
from tests.crash.raw_client import CREATE, create_body

DELETED_SHARE = 0.4


class SequentialFolder:
    """One parent, and what all its users know of it."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.created: list[Named] = []
        self.deleted: set[bytes] = set()
        self.maybe_deleted: set[bytes] = set()
        self.maybe_created: set[bytes] = set()
        """The data of those whose creation has an unknown outcome."""

    def check(self, found: Mapping[bytes, bytes]) -> int:
        """Compare what is there at last, name and data, with what was told. Returns the number of names given."""
        check_names(self.created)
        names = {each.name for each in self.created}
        lost = names - self.deleted - self.maybe_deleted - found.keys()
        assert not lost, f"acknowledged sequential znodes are lost: {sorted(lost)}"
        risen = self.deleted & found.keys()
        assert not risen, f"deleted sequential znodes are there again: {sorted(risen)}"
        strange = {name for name in found.keys() - names if found[name] not in self.maybe_created}
        assert not strange, f"nobody created these sequential znodes: {sorted(strange)}"
        return len(names)


class Sequencer:
    """One client of such a folder."""

    def __init__(self, client: Client, acknowledgements: Acknowledgements) -> None:
        self.client = client
        self._acknowledgements = acknowledgements
        self._made = 0

    async def use_one(self, folder: SequentialFolder) -> None:
        """Create one, and perhaps delete it. A loss of the connection leaves the outcome unknown."""
        self._made += 1
        data = b"%s %d" % (self.client.name.encode(), self._made)
        try:
            name = await self._create(folder, data)
            if random.random() < DELETED_SHARE:
                await self._delete(folder, name)
        except ConnectionError:
            pass

    async def _create(self, folder: SequentialFolder, data: bytes) -> bytes:
        connection = await self.client.connection()
        flags = random.choice((SEQUENTIAL, EPHEMERAL_SEQUENTIAL))
        folder.maybe_created.add(data)
        invoked_s = time.monotonic()
        reply = await connection.request(CREATE, create_body(folder.path + b"/n-", data, flags))
        assert reply.error == 0, f"a create below {folder.path!r} was answered with error {reply.error}"
        folder.maybe_created.discard(data)
        name = reply.body[4:].rpartition(b"/")[2]
        folder.created.append(Named(name, invoked_s, time.monotonic()))
        self._acknowledgements.add()
        return name

    async def _delete(self, folder: SequentialFolder, name: bytes) -> None:
        folder.maybe_deleted.add(name)
        reply = await self.client.call(DELETE, delete_body(folder.path + b"/" + name))
        assert reply.error == 0, f"the delete of the acknowledged {name!r} was answered with error {reply.error}"
        folder.maybe_deleted.discard(name)
        folder.deleted.add(name)
        self._acknowledgements.add()
