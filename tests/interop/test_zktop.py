"""zktop, a terminal program that lives on the four-letter words, shows the server and its sessions."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable

from kazoo.client import KazooClient

from tests.interop.conftest import Parts
from tests.server_process import ServerProcess

ROWS, COLUMNS = 24, 100
SCREEN_TIMEOUT_S = 30.0
ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Za-z0-9]|[=>])")


def read_screen(terminal: int, shown: Callable[[str], bool]) -> str:
    """What the program at the other end of `terminal` printed, without escape sequences, once `shown` holds of it."""
    printed = ""
    deadline = time.monotonic() + SCREEN_TIMEOUT_S
    while not shown(printed):
        left_s = deadline - time.monotonic()
        readable, _, _ = select.select([terminal], [], [], max(left_s, 0))
        assert readable, f"not on the screen within {SCREEN_TIMEOUT_S} s; it shows: {printed!r}"
        printed += ESCAPE_SEQUENCE.sub(" ", os.read(terminal, 65536).decode())
    return printed


def znode_count(client: KazooClient) -> int:
    found = re.search(r"^zk_znode_count\t(\d+)$", client.command(b"mntr"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_the_server_and_its_sessions_are_shown(parts: Parts, znoded_server: Callable[..., ServerProcess]) -> None:
    zktop = parts.program("zktop", "Debian's zktop")
    server = znoded_server()
    client = KazooClient(server.address)
    client.start()
    client.create("/app")
    terminal, programs_end = pty.openpty()
    fcntl.ioctl(programs_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [zktop, f"--servers={server.address}"],
        stdin=programs_end,
        stdout=programs_end,
        stderr=programs_end,
        env={"TERM": "xterm", "PATH": os.defpath},
        start_new_session=True,
    )
    os.close(programs_end)
    try:
        screen = read_screen(terminal, lambda text: "nodecount:" in text and "QUEUED" in text)
        assert f"nodecount:{znode_count(client)} " in screen
        assert "sessions:2" in screen  # this client's and the connection that zktop asks on
        assert re.search(rf"0 +127\.0\.0\.1 +{server.port} S ", screen)
        os.write(terminal, b"q")
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(terminal)
        client.stop()
        client.close()
