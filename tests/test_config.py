"""What a configuration may say, and what is answered to one that says something else."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import PEM
from tests.interop.certificates import make_certificates
from znoded import config as configuration
from znoded.config import Config, ConfigError, Limits, load_toml, parse
from znoded.config_values import Problem, read_secret

ROOT = Path(__file__).parent.parent
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
MEMBER = {"peer": "127.0.0.1:2888", "client": "127.0.0.1:2181"}


def problems(table: dict[str, object]) -> dict[str, str]:
    """Key -> message of everything that is wrong with `table`."""
    with pytest.raises(ConfigError) as caught:
        parse(table)
    return {problem.key: problem.message for problem in caught.value.problems}


@pytest.fixture
def toml_file(tmp_path: Path) -> Path:
    return tmp_path / "member.toml"


def test_nothing_said_is_one_member_on_2181_with_its_admin_on_loopback() -> None:
    config = parse({})
    assert config.member == 1
    assert config.data_dir == str(Path("znoded-data").absolute())
    assert config.client.listen == ("tcp:2181",)
    assert config.client.tls is None
    assert config.admin.listen == "tcp:8080:interface=127.0.0.1"
    assert config.limits == Limits()


def test_the_example_of_the_documentation_is_usable(toml_file: Path, pem_files: dict[str, str]) -> None:
    example = re.search(r"```toml\n(.*?)```", (ROOT / "docs/configuration.md").read_text(), re.DOTALL)
    assert example
    text = example[1]
    for name, path in pem_files.items():
        text = re.sub(f"(?m)^{name} = .*$", f'{name} = "{path}"', text)
    toml_file.write_text(text)
    config = load_toml(str(toml_file))
    assert config.client.tls is not None
    assert config.client.tls.client_ca == pem_files["client_ca"]
    assert config.auth.sasl_users == {"jaasuser": "jaas_password"}


@pytest.mark.parametrize("path", sorted((ROOT / "conf").rglob("*.toml")), ids=lambda path: path.name)
def test_the_configurations_we_ship_are_usable(path: Path) -> None:
    load_toml(str(path))


def test_the_documentation_has_every_key_with_its_default_and_range() -> None:
    text = (ROOT / "docs/configuration.md").read_text() + (ROOT / "docs/limits.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| `")]
    documented = {key.strip("`"): (default.strip("`"), numbers) for _, key, default, numbers, *_ in cells}
    keys = {f"{section.name}.": section.default_factory for section in dataclasses.fields(Config)}
    keys = {name: section for name, section in keys.items() if dataclasses.is_dataclass(section)} | {"": Config}
    for prefix, section in keys.items():
        for key in dataclasses.fields(section):
            name = prefix + key.name
            if dataclasses.is_dataclass(key.default_factory):
                continue
            assert name in documented
            default, numbers = documented[name]
            if isinstance(key.default, int | str):
                assert default == json.dumps(key.default), name
            assert numbers == range_of(key), name


def range_of(key: dataclasses.Field[Any]) -> str:
    """The least and the greatest whole number that a key may have, as its error message tells; empty for others."""
    told: list[Problem] = []
    key.metadata["read"](object(), key.name, told)
    found = re.search("a whole number from ([0-9]+ to [0-9]+)", told[0].message)
    return found[1] + (", or 0" if ", or 0:" in told[0].message else "") if found else ""


COLLIDING = {
    "client twice": ({"client": {"listen": ["tcp:2181", "tcp:2181:interface=127.0.0.1"]}}, "client.listen[1]"),
    "client and admin": ({"client": {"listen": ["tcp:8080"]}}, "admin.listen"),
    "admin and api": ({"api": {"listen": "tcp:8080"}}, "api.listen"),
    "IPv6": ({"client": {"listen": [r"tcp6:1:interface=\:\:1", "tcp6:1"]}}, "client.listen[1]"),
    "an interface with no name": (
        {"client": {"listen": ["tcp:1:backlog=5:127.0.0.1", "tcp:1:127.0.0.1"]}},
        "client.listen[1]",
    ),
    "peers": (
        {"cell": {"members": {"1": MEMBER}}, "client": {"listen": ["tcp:2888:interface=127.0.0.1"]}},
        "cell.members.1.peer",
    ),
    "cell.listen": ({"cell": {"members": {"1": MEMBER}, "listen": "tcp:2181"}}, "cell.listen"),
}


@pytest.mark.parametrize(("table", "key"), COLLIDING.values(), ids=COLLIDING)
def test_two_listeners_cannot_have_one_port(table: dict[str, object], key: str) -> None:
    assert list(told := problems(table)) == [key]
    assert "it must be another port or interface than " in told[key]


def test_a_tls_endpoint_collides_with_a_plain_one(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    endpoint = f"ssl:2181:privateKey={made.server_key}:certKey={made.server_certificate}:interface=127.0.0.1"
    assert "than client.listen[0]" in problems({"api": {"listen": endpoint}})["api.listen"]


def test_listeners_of_other_interfaces_and_those_that_take_any_port_do_not_collide() -> None:
    own = [
        "tcp:1:interface=127.0.0.1",
        "tcp:1:127.0.0.2",
        "tcp:1:backlog=5:127.0.0.3",
        r"tcp6:1:interface=\:\:1",
        "tcp:0",
        "tcp:0",
        "unix:1",
        "stdio",
    ]
    parse({"client": {"listen": own}})


def test_session_timeouts_lie_between_two_and_twenty_ticks() -> None:
    config = parse({"tick_ms": 200})
    assert (config.session_timeout_min_ms, config.session_timeout_max_ms) == (400, 4000)


def test_session_timeouts_can_be_set_apart_from_the_tick() -> None:
    config = parse({"limits": {"session_timeout_min_ms": 100, "session_timeout_max_ms": 90_000}})
    assert (config.session_timeout_min_ms, config.session_timeout_max_ms) == (100, 90_000)


def test_the_least_session_timeout_may_not_be_above_the_greatest() -> None:
    assert "limits.session_timeout_min_ms" in problems({"limits": {"session_timeout_min_ms": 50_000}})


def test_an_unknown_key_is_refused_with_the_one_that_was_meant() -> None:
    message = "there is no such key; did you mean frame_bytes?"
    assert problems({"limits": {"frame_byte": 1}}) == {"limits.frame_byte": message}


def test_an_unknown_key_unlike_any_other_is_refused_with_the_list() -> None:
    assert "there are sweep_interval_ms, ttl_nodes" in problems({"tree": {"xyzzy": 1}})["tree.xyzzy"]


def test_everything_wrong_is_said_at_once() -> None:
    found = problems({"tick_ms": "soon", "client": {"reads": "fast"}, "words": {"allow": ["rouk"]}, "colour": "blue"})
    assert set(found) == {"tick_ms", "client.reads", "words.allow[0]", "colour"}


def test_a_message_names_the_key_the_value_and_what_would_be_right() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"tick_ms": "soon"}, source="member.toml")
    assert str(caught.value) == (
        "member.toml is not a usable configuration:\n"
        '  tick_ms: "soon" is not right: it must be a whole number from 1 to 3600000, in ms'
    )


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"tick_ms": True}, "tick_ms"),
        ({"tick_ms": 0}, "tick_ms"),
        ({"member": 255}, "member"),
        ({"data_dir": ""}, "data_dir"),
        ({"client": 7}, "client"),
        ({"client": {"listen": "tcp:2181"}}, "client.listen"),
        ({"client": {"listen": ["2181"]}}, "client.listen[0]"),
        ({"client": {"listen": ["tcp:2181", "tcp:65536"]}}, "client.listen[1]"),
        ({"client": {"listen": []}}, "client.listen"),
        ({"admin": {"listen": "8080"}}, "admin.listen"),
        ({"auth": {"super_digest": "super:secret"}}, "auth.super_digest"),
        ({"auth": {"super_digest": "super:c2VjcmV0"}}, "auth.super_digest"),
        ({"auth": {"sasl_users": ["bob"]}}, "auth.sasl_users"),
        ({"auth": {"sasl_users": {"bob": ""}}}, "auth.sasl_users.bob"),
        ({"tree": {"ttl_nodes": "yes"}}, "tree.ttl_nodes"),
        ({"words": {"allow": "*"}}, "words.allow"),
        ({"cell": {"members": []}}, "cell.members"),
        ({"cell": {"members": {"one": MEMBER}}}, "cell.members.one"),
        ({"cell": {"members": {"1": {"peer": "127.0.0.1", "client": "a:1"}}}}, "cell.members.1.peer"),
        ({"cell": {"members": {"1": {"client": "a:1"}}}}, "cell.members.1.peer"),
        ({"cell": {"members": {"1": {**MEMBER, "role": "learner"}}}}, "cell.members.1.role"),
        ({"cell": {"members": {"2": MEMBER}}}, "member"),
        ({"cell": {"members": {"1": 5}}}, "cell.members.1"),
        ({"cell": {"members": {"1": {**MEMBER, "id": 2}}}}, "cell.members.1.id"),
        ({"cell": {"members": {"1": MEMBER, "01": MEMBER}}}, "cell.members.01"),
        ({"cell": {"members": {"9" * 5_000: MEMBER}}}, f"cell.members.{'9' * 5_000}"),
        ({"tick_ms": 1 << 20_000}, "tick_ms"),
        ({"data_dir": "a\0b"}, "data_dir"),
        ({"cell": {"secret_file": "a\0b"}}, "cell.secret_file"),
        ({"auth": {"super_digest": "super:\u00e9"}}, "auth.super_digest"),
    ],
)
def test_a_bad_value_is_refused_under_its_key(table: dict[str, object], key: str) -> None:
    assert list(problems(table)) == [key]


def test_secrets_do_not_show_in_messages_or_in_the_configuration_as_text() -> None:
    found = problems({"auth": {"super_digest": "super:hunter2", "sasl_users": {"bob": ["hunter2"]}}})
    assert "hunter2" not in str(found)
    config = parse({"auth": {"super_digest": SUPER_DIGEST, "sasl_users": {"bob": "hunter2"}}})
    assert "hunter2" not in repr(config)
    assert SUPER_DIGEST not in repr(config)


def test_tls_files_have_to_be_there_and_to_be_pem(tmp_path: Path, pem_files: dict[str, str]) -> None:
    absent = str(tmp_path / "absent.crt")
    tls = {"listen": ["tcp:2281"], "certificate": absent, "private_key": pem_files["certificate"]}
    found = problems({"client": {"tls": tls}})
    assert absent in found["client.tls.certificate"]
    assert "PRIVATE KEY" in found["client.tls.private_key"]


def test_a_private_key_with_a_password_is_refused_before_anybody_is_asked_for_it(pem_files: dict[str, str]) -> None:
    Path(pem_files["private_key"]).write_text(PEM.format("ENCRYPTED PRIVATE KEY"))
    found = problems({"client": {"tls": {"listen": ["tcp:2281"], **pem_files}}})
    assert "has no password" in found["client.tls.private_key"]


def test_tls_may_be_the_only_listener(pem_files: dict[str, str]) -> None:
    config = parse({"client": {"listen": [], "tls": {"listen": ["tcp:2281"], **pem_files}}})
    assert config.client.tls is not None
    assert config.client.tls.listen == ("tcp:2281",)


def test_a_cell_of_one_is_the_member_alone() -> None:
    config = parse({"cell": {"members": {"1": MEMBER}}})
    assert config.cell.members[1].role == "voter"


def members(count: int) -> dict[str, object]:
    """The table of a cell of voters on one machine."""
    addresses = {
        str(n): {"peer": f"127.0.0.1:{2887 + n}", "client": f"127.0.0.1:{2180 + n}"} for n in range(1, count + 1)
    }
    return {"cell": {"members": addresses}}


def test_a_cell_of_several() -> None:
    config = parse({"member": 2, **members(3)})
    assert list(config.cell.members) == [1, 2, 3]
    assert config.peer_listen == "tcp:2889:interface=127.0.0.1"
    assert (config.cell.heartbeat_ms, config.cell.election_ms) == (100, 1000)
    assert (config.cell.secret_file, config.cell.tls) == (None, None)


@pytest.mark.parametrize(
    ("peer", "endpoint"),
    [
        ("10.0.0.1:2888", "tcp:2888:interface=10.0.0.1"),
        ("[::1]:2888", r"tcp6:2888:interface=\:\:1"),
        ("host.example:2888", "tcp:2888"),
    ],
)
def test_a_member_listens_where_the_others_look_for_it(peer: str, endpoint: str) -> None:
    assert parse({"cell": {"members": {"1": {"peer": peer}}}}).peer_listen == endpoint


def test_a_member_may_listen_elsewhere_than_the_others_look_for_it() -> None:
    table = {"cell": {"members": {"1": MEMBER}, "listen": "tcp:3333"}}
    assert parse(table).peer_listen == "tcp:3333"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"1": {"role": "learner"}, "2": {"role": "learner"}, "3": {"role": "learner"}}, "cell.members.1.role"),
        ({"2": {"peer": "127.0.0.1:2888"}}, "cell.members.2.peer"),
        ({"2": {"client": "127.0.0.1:2888"}}, "cell.members.2.client"),
        ({"1": {"peer": "HOST:2888"}, "2": {"peer": "host:2889", "client": "0.0.0.0:2888"}}, "cell.members.2.client"),
        ({"2": {"peer": "0.0.0.0:2889"}}, "cell.members.2.peer"),
        ({"2": {"peer": "a;b:2889"}}, "cell.members.2.peer"),
        ({"2": {"client": "127.0.0.1"}}, "cell.members.2.client"),
    ],
)
def test_members_that_cannot_be_together_are_refused(changes: dict[str, dict[str, str]], key: str) -> None:
    table: Any = members(3)
    for number, change in changes.items():
        table["cell"]["members"][number] |= change
    assert list(problems(table)) == [key]


def test_members_may_leave_out_where_clients_reach_them() -> None:
    table: Any = members(2)
    for member in table["cell"]["members"].values():
        del member["client"]
    assert [member.client for member in parse(table).cell.members.values()] == ["", ""]


def test_a_command_of_a_cell_fits_into_a_frame_between_members() -> None:
    limits = {"frame_bytes": 14 << 20}
    assert parse({"limits": limits}).limits.frame_bytes == 14 << 20
    found = problems({**members(3), "limits": limits})
    most = "at most 14680064 bytes in a cell, limits.identity_bytes_per_connection included"
    assert found == {"limits.frame_bytes": f"14680064 bytes is not right: it must be {most}"}


def test_an_election_waits_for_some_heartbeats() -> None:
    found = problems({"cell": {"heartbeat_ms": 100, "election_ms": 399}})
    assert found == {"cell.election_ms": "399 ms is not right: it must be at least 400 ms, 4 heartbeats"}


class TestSecretFile:
    @pytest.fixture
    def secret_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "cell.secret"
        path.write_bytes(b"0123456789abcdef\n")
        path.chmod(0o600)
        return path

    def test_it_is_read_without_the_space_around_it(self, secret_file: Path) -> None:
        config = parse({"cell": {"secret_file": str(secret_file)}})
        assert config.cell.secret_file == str(secret_file)
        assert read_secret(str(secret_file)) == b"0123456789abcdef"

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
    def test_nobody_else_may_use_it(self, secret_file: Path, mode: int) -> None:
        secret_file.chmod(mode)
        found = problems({"cell": {"secret_file": str(secret_file)}})["cell.secret_file"]
        assert f"its mode is {mode:04o}: chmod 600 {secret_file}" in found

    @pytest.mark.parametrize("content", [b"", b"0123456789abcde\n", b"x" * 4097])
    def test_it_is_neither_short_nor_long(self, secret_file: Path, content: bytes) -> None:
        secret_file.write_bytes(content)
        found = problems({"cell": {"secret_file": str(secret_file)}})["cell.secret_file"]
        assert "must be a file with a secret of 16 to 4096 bytes" in found
        assert "xxx" not in found

    def test_one_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        absent = str(tmp_path / "absent")
        assert f"({absent}: No such file" in problems({"cell": {"secret_file": absent}})["cell.secret_file"]


def test_tls_between_members_needs_all_its_files(pem_files: dict[str, str]) -> None:
    tls = {
        "certificate": pem_files["certificate"],
        "private_key": pem_files["private_key"],
        "ca": pem_files["client_ca"],
    }
    config = parse({"cell": {"tls": tls}})
    assert config.cell.tls == configuration.CellTlsConfig(**tls)
    assert list(problems({"cell": {"tls": {**tls, "ca": pem_files["private_key"]}}})) == ["cell.tls.ca"]
    del tls["ca"]
    assert list(problems({"cell": {"tls": tls}})) == ["cell.tls.ca"]


def test_the_command_line_wins_over_the_file(toml_file: Path) -> None:
    toml_file.write_text('[client]\nlisten = ["tcp:2181"]\nreads = "serializable"\n')
    config = load_toml(str(toml_file), {"client.listen": ["tcp:2281"], "admin.listen": ""})
    assert config.client.listen == ("tcp:2281",)
    assert config.client.reads == "serializable"
    assert config.admin.listen is None


def test_a_file_that_cannot_be_read_is_named(toml_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"member\.toml .*\n.*cannot be read: No such file"):
        load_toml(str(toml_file))


@pytest.mark.parametrize("content", [b"tick_ms = ", b"\xff"])
def test_a_file_that_is_not_toml_is_refused(toml_file: Path, content: bytes) -> None:
    toml_file.write_bytes(content)
    with pytest.raises(ConfigError, match="is not TOML"):
        load_toml(str(toml_file))


names = st.sampled_from(["listen", "members", "1", "allow", "sasl_users", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([key.name for key in dataclasses.fields(Config)] + ["x"]), values, max_size=4))
def test_any_table_is_a_configuration_or_a_list_of_problems(table: dict[str, object]) -> None:
    with suppress(ConfigError):
        parse(table)


def test_every_key_is_used_by_some_part_of_the_house() -> None:
    by_design = {
        "client.reads",
        *(f"cell.{key.name}" for key in dataclasses.fields(configuration.CellConfig)),
    }  # what one member does not need yet
    others = [path for path in (ROOT / "znoded").rglob("*.py") if not re.match("config|zoo_cfg", path.name)]
    text = "\n".join(path.read_text() for path in others) + configuration_properties()
    sections: dict[str, Any] = {section.name: section.default_factory for section in dataclasses.fields(Config)}
    unused = {
        f"{name}.{key.name}"
        for name, section in sections.items()
        if dataclasses.is_dataclass(section)
        for key in dataclasses.fields(section)
        if f".{key.name}" not in text
    }
    assert unused <= by_design


def configuration_properties() -> str:
    """The source of what `Config` derives from its keys."""
    return "".join(
        inspect.getsource(value.fget) for value in vars(Config).values() if isinstance(value, property) and value.fget
    )
