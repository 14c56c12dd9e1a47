"""`twistd znoded`: what the command line means, and how a member's service starts, stops and fails."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, globalLogPublisher

from tests.server.test_cell_member import COUNTERS
from tests.server_process import ROOT, TWISTD, ServerProcess, free_port
from znoded import service
from znoded.command import main
from znoded.config import Config, parse
from znoded.server.cell_member import CellMember
from znoded.service import MemberService, Options, makeService


def options(*arguments: str) -> Options:
    parsed = Options()
    parsed.parseOptions(arguments)
    return parsed


class FakeMember:
    """A member whose start and stop are in the hands of the test."""

    def __init__(self, config: Config, reactor: object) -> None:
        self.starting: Deferred[None] = Deferred()
        self.stopped = False
        self.words = None

    def start(self) -> Deferred[None]:
        return self.starting

    def stop(self) -> Deferred[None]:
        self.stopped = True
        return succeed(None)

    def look_at_readiness(self) -> Deferred[str]:
        return succeed("")

    def back_up(self) -> Deferred[str]:
        return succeed("")


@pytest.fixture
def reactor() -> MemoryReactorClock:
    return MemoryReactorClock()


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> FakeMember:
    made = FakeMember(parse({}), None)
    monkeypatch.setattr(service, "Member", lambda config, reactor: made)
    return made


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons for which the process was ended."""
    reasons: list[str] = []
    monkeypatch.setattr(service, "exit_in_failure", lambda reactor, reason: reasons.append(reason))
    return reasons


@pytest.fixture
def log_events() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


@pytest.fixture
def member_service(member: FakeMember, reactor: MemoryReactorClock) -> Iterator[MemberService]:
    made = MemberService(parse({"admin": {"listen": "tcp:8080"}}), reactor)
    made.startService()
    reactor.run()
    yield made
    if made.running:
        made.stopService()


def test_without_options_it_is_one_member_with_its_defaults() -> None:
    assert options().config == parse({})


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "member.toml"
    file.write_text('data_dir = "elsewhere"\nmember = 3\n[client]\nlisten = ["tcp:2181"]\n')
    config = options(
        f"--config={file}", f"--data-dir={tmp_path}", "--client=tcp:2281", "--client=tcp:2282", "--admin="
    ).config
    assert config.member == 3
    assert config.data_dir == str(tmp_path)
    assert config.client.listen == ("tcp:2281", "tcp:2282")
    assert config.admin.listen is None


def test_a_zoo_cfg_is_taken_with_its_notes(tmp_path: Path, log_events: list[LogEvent], member: FakeMember) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}\nclientPort=2281\ninitLimit=5\n")
    parsed = options(f"--zoo-cfg={file}")
    assert parsed.config.client.listen == ("tcp:2281",)
    makeService(parsed)
    assert any("initLimit" in event.get("note", "") for event in log_events)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client=2181"], 'client.listen[0]: "2181" is not right'),
        (["--config=/nowhere.toml"], "the file: cannot be read"),
        (["--config=a", "--zoo-cfg=b"], "give one of them"),
    ],
)
def test_a_bad_configuration_ends_the_process_with_its_message(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as caught:
        options(*arguments)
    assert message in str(caught.value)


def test_the_admin_listener_is_there_before_the_member_has_recovered(
    member_service: MemberService, reactor: MemoryReactorClock
) -> None:
    assert [port for port, *_ in reactor.tcpServers] == [8080]


def test_no_admin_listener_is_opened_when_none_is_wanted(member: FakeMember, reactor: MemoryReactorClock) -> None:
    made = MemberService(parse({"admin": {"listen": ""}}), reactor)
    made.startService()
    reactor.run()
    assert not reactor.tcpServers
    member.starting.callback(None)
    made.stopService()


def test_a_member_that_is_stopped_while_it_starts_is_stopped_after_that(
    member_service: MemberService, member: FakeMember
) -> None:
    stopping = member_service.stopService()
    assert not member.stopped
    member.starting.callback(None)
    assert member.stopped
    assert stopping.called


def test_a_member_that_cannot_start_ends_the_process_with_the_reason(
    member_service: MemberService, member: FakeMember, failures: list[str]
) -> None:
    member.starting.errback(OSError("the disk is gone"))
    assert failures == ["the member cannot start: the disk is gone"]


def test_an_unforeseen_error_at_start_leaves_its_traceback(
    member_service: MemberService, member: FakeMember, failures: list[str], log_events: list[LogEvent]
) -> None:
    member.starting.errback(KeyError("what"))
    assert failures
    assert any("log_failure" in event for event in log_events)


def test_a_member_that_could_not_start_is_still_stopped(
    member_service: MemberService, member: FakeMember, failures: list[str]
) -> None:
    member.starting.errback(OSError("no"))
    member_service.stopService()
    assert member.stopped


@pytest.mark.parametrize("name", ["member1", "member2", "member3"])
def test_a_configuration_that_lists_members_starts_a_member_of_a_cell(tmp_path: Path, name: str) -> None:
    config = options(f"--config={ROOT}/conf/cell/{name}.toml", f"--data-dir={tmp_path}").config
    assert isinstance(MemberService(config, MemoryReactorClock())._member, CellMember)


class TestCheckConfig:
    """`znoded check-config FILE`."""

    def test_a_usable_file_is_said_to_be_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "member.toml").write_text("tick_ms = 500\n")
        assert main(["check-config", str(tmp_path / "member.toml")]) == 0
        assert "is a usable configuration" in capsys.readouterr().out

    def test_what_is_wrong_goes_to_standard_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "member.toml").write_text("tick = 500\n")
        assert main(["check-config", str(tmp_path / "member.toml")]) == 1
        assert "did you mean tick_ms?" in capsys.readouterr().err

    def test_a_zoo_cfg_is_checked_with_its_notes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}\nsnapCount=1\n")
        assert main(["check-config", "--zoo-cfg", str(tmp_path / "zoo.cfg")]) == 0
        assert "snapCount: has no effect" in capsys.readouterr().out


def twistd(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `twistd -n znoded` with arguments it is expected to end at once with."""
    command = [sys.executable, "-c", TWISTD, "--nodaemon", "--pidfile=", "znoded", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_twistd_shows_a_bad_configuration_without_a_traceback_and_fails(tmp_path: Path) -> None:
    ended = twistd("--client=2181", cwd=tmp_path)
    assert ended.returncode == 1
    assert "is not a usable configuration" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout


def test_twistd_fails_when_the_port_is_taken(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    with ServerProcess(tmp_path / "first") as first:
        ended = twistd(f"--client=tcp:{first.port}:interface=127.0.0.1", "--admin=", cwd=tmp_path)
    assert ended.returncode == 1
    assert str(first.port) in ended.stdout
    assert "Traceback" not in ended.stderr + ended.stdout


def test_twistd_serves_and_ends_in_good_order_on_sigterm(znoded_server: Callable[..., ServerProcess]) -> None:
    server = znoded_server()
    assert server.serves()
    assert server.stop() == -signal.SIGTERM
    assert "Server Shut Down." in server.log_path.read_text()


def test_every_metric_of_a_member_is_documented(znoded_server: Callable[..., ServerProcess]) -> None:
    api_port = free_port()
    server = znoded_server(f'[api]\nlisten = "tcp:{api_port}:interface=127.0.0.1"\n')
    urlopen(f"http://127.0.0.1:{api_port}/v1/openapi.json").close()
    with urlopen(f"http://127.0.0.1:{server.admin_port}/metrics") as answer:
        names = set(re.findall(r"^(znoded_\w+)", answer.read().decode(), re.MULTILINE))
    documented = set(re.findall(r"`(znoded_\w+)", (ROOT / "docs/metrics.md").read_text()))
    in_a_cell = {f"znoded_{name}" for name in COUNTERS}
    assert names == documented - in_a_cell
    assert in_a_cell <= documented


def test_timers_follow_the_monotonic_clock_and_threads_get_their_turn_soon(
    member: FakeMember, reactor: MemoryReactorClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals: list[float] = []
    monkeypatch.setattr("twisted.internet.reactor", reactor)
    monkeypatch.setattr("sys.setswitchinterval", intervals.append)
    options = service.Options()
    options.parseOptions(["--admin", ""])
    service.makeService(options)
    assert reactor.seconds is time.monotonic
    assert intervals == [service.SWITCH_INTERVAL_S]
