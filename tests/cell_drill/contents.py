"""All znodes below a folder, as one member shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.cell_drill.client import Client
from tests.cell_drill.wire import DELETE, data_of, delete_body, names_of, path_body
from tests.crash.raw_client import GET_CHILDREN, GET_DATA, NO_NODE

AT_ONCE = 500


async def contents(port: int, folder: bytes) -> dict[bytes, bytes]:
    """Path to data and Stat, as getData has them, read through the member at `port` alone."""
    client = Client(f"reader of {port}", [port], patience_s=10.0)
    await client.start()
    found: dict[bytes, bytes] = {}
    level = [folder]
    while level:
        bodies = await many(client, GET_DATA, level)
        found.update(zip(level, bodies, strict=True))
        parents = [path for path, body in zip(level, bodies, strict=True) if data_of(body)[1].children]
        children = await many(client, GET_CHILDREN, parents)
        level = [
            parent + b"/" + name for parent, body in zip(parents, children, strict=True) for name in names_of(body)
        ]
    await client.stop()
    return found


async def many(client: Client, op: int, paths: list[bytes]) -> list[bytes]:
    """The reply of each path, asked for at once."""
    bodies = []
    for start in range(0, len(paths), AT_ONCE):
        replies = await asyncio.gather(*(client.insist(op, path_body(path)) for path in paths[start : start + AT_ONCE]))
        for reply in replies:
            assert reply.error == 0, f"a read was answered with error {reply.error} when nobody wrote"
            bodies.append(reply.body)
    return bodies


async def delete_all(client: Client, paths: Iterable[bytes]) -> None:
    """Delete these, the deepest first."""
    deepest_first = sorted(paths, key=lambda path: path.count(b"/"), reverse=True)
    for start in range(0, len(deepest_first), AT_ONCE):
        replies = await asyncio.gather(
            *(client.insist(DELETE, delete_body(path)) for path in deepest_first[start : start + AT_ONCE])
        )
        assert {reply.error for reply in replies} <= {0, NO_NODE}, "a delete failed when nobody wrote"
