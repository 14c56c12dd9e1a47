"""Builds the load driver and the null server with `cc`, and runs them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SOURCES = Path(__file__).resolve().parent
CACHE = SOURCES.parent / ".cache" / "bench"
FLAGS = ("-O2", "-Wall", "-Wextra", "-std=gnu11", "-pthread")
LOOPBACK = "127.0.0.1"

#: What the driver prints: requests, requests_per_s, p50_ms, p99_ms, max_ms, failed, driver_cpu_share and so on.
Result = dict[str, Any]
#: A loopback port, or those of several servers, over which the connections are spread.
Ports = int | Sequence[int]


class DriverError(Exception):
    """The driver could not be built, or a run of it failed; the message is what it said."""


def build(name: str) -> Path:
    """The program made of NAME.c, compiled anew when it or a header is newer."""
    source, program = SOURCES / f"{name}.c", CACHE / name
    newest = max(path.stat().st_mtime for path in (source, *SOURCES.glob("*.h")))
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise DriverError("no `cc` on the PATH: install a C compiler (Debian: gcc and libc6-dev)")
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_suffix(".new")
    made = subprocess.run([compiler, *FLAGS, "-o", unfinished, source], capture_output=True, text=True)
    if made.returncode != 0:
        raise DriverError(f"{source} does not compile:\n{made.stderr}")
    unfinished.replace(program)  # a compiler that was interrupted leaves an empty file
    return program


def load(ports: Ports, mode: str, **options: float | str) -> Result:
    """Run the driver in a mode against loopback ports, with its options by name (`warm_up=0` is `--warm-up 0`)."""
    run = subprocess.run(_command(ports, mode, options), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != 0:
        raise DriverError(f"load {mode} {options}: {run.stderr.strip() or run.returncode}")
    result: Result = json.loads(run.stdout)
    return result


class BackgroundLoad:
    """A run of the driver beside something else: `finish` waits for its result, `end` makes it `hold` no longer."""

    def __init__(self, ports: Ports, mode: str, **options: float | str) -> None:
        self._process = subprocess.Popen(
            _command(ports, mode, options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def first_line(self) -> Result:
        """The line that `hold` prints once its sessions are open."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DriverError(f"load: {self._process.communicate()[1].strip()}")
        result: Result = json.loads(line)
        return result

    def finish(self) -> Result:
        output, errors = self._process.communicate()
        if self._process.returncode != 0:
            raise DriverError(f"load: {errors.strip() or self._process.returncode}")
        result: Result = json.loads(output)
        return result

    def end(self) -> None:
        """Close the driver's input and wait until it has closed its sessions."""
        self._process.communicate()


class NullServer:
    """The server that does nothing, on a loopback port."""

    def __init__(self, port: int, size_bytes: int = 100) -> None:
        self.port = port
        self.size_bytes = size_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [build("null_server"), str(self.port), str(self.size_bytes)], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate()


def _command(ports: Ports, mode: str, options: dict[str, float | str]) -> list[str]:
    pairs = (pair for name, value in options.items() for pair in (f"--{name.replace('_', '-')}", str(value)))
    addresses = ",".join(f"{LOOPBACK}:{port}" for port in ([ports] if isinstance(ports, int) else ports))
    return [str(build("load")), addresses, mode, *pairs]
