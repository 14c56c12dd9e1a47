"""The whole program on a disk whose sync fails."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import server_process
from tests.crash.raw_client import CREATE, RawClient, create_body
from tests.server_process import ServerProcess

FAILING_DISK = """
import errno, os, sys
write = os.pwritev
def write_or_fail(descriptor, pieces, offset, flags=0):
    if flags & os.RWF_DSYNC and os.path.exists({flag!r}):
        os.unlink({flag!r})
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return write(descriptor, pieces, offset, flags)
os.pwritev = write_or_fail
"""


def test_failed_sync_ends_the_process_with_a_failure_and_acknowledges_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "fail-the-next-sync"
    program = FAILING_DISK.format(flag=str(flag)) + server_process.TWISTD
    monkeypatch.setattr(server_process, "TWISTD", program)
    with ServerProcess(tmp_path) as server:
        client = RawClient(server.port, 10_000)
        client.create(b"/acknowledged")
        flag.touch()
        client.send(CREATE, create_body(b"/lost-1", b""))
        client.send(CREATE, create_body(b"/lost-2", b""))
        with pytest.raises(ConnectionError):
            client.receive()
        assert server.end(signal.SIGCONT) != 0  # a signal that does nothing: it ends by itself
        assert "Input/output error" in server.log_path.read_text()
        server.start()
        client = RawClient(server.port, 10_000)
        assert b"acknowledged" in client.children(b"/")
