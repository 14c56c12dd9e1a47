"""What is taken over from a ZooKeeper's zoo.cfg; what cannot be is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PEM
from znoded.config import ConfigError, MemberConfig, TlsConfig, TreeConfig, load_toml, load_zoo_cfg

SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


@pytest.fixture
def zoo_cfg(tmp_path: Path) -> Path:
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}\nclientPort=2181\n")
    return tmp_path / "zoo.cfg"


def add(zoo_cfg: Path, text: str) -> str:
    """The path of the file, with some text added."""
    with zoo_cfg.open("a") as file:
        file.write(text)
    return str(zoo_cfg)


def test_the_usual_keys_are_taken_over(zoo_cfg: Path) -> None:
    path = add(
        zoo_cfg,
        "tickTime=200\nmaxClientCnxns=0\n4lw.commands.whitelist=mntr, ruok\nextendedTypesEnabled=true\n"
        "enforceQuota=false\nreconfigEnabled=TRUE\nminSessionTimeout=100\njute.maxbuffer=0x1fffff\n"
        f"zookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}\nglobalOutstandingLimit=77\n",
    )
    config, notes = load_zoo_cfg(path)
    assert config.data_dir == str(zoo_cfg.parent)
    assert config.tick_ms == 200
    assert config.client.listen == ("tcp:2181",)
    assert config.limits.connections_per_address == 0
    assert config.limits.frame_bytes == 0x1FFFFF
    assert config.limits.outstanding == 77
    assert config.session_timeout_min_ms == 100
    assert config.words.allow == ("mntr", "ruok")
    assert config.tree == TreeConfig(ttl_nodes=True, enforce_quota=False, reconfig=True)
    assert config.auth.super_digest == SUPER_DIGEST
    assert not notes


def test_addresses_become_endpoints(zoo_cfg: Path) -> None:
    client = "clientPortAddress=::1\nclientPortListenBacklog=9\n"
    config, _ = load_zoo_cfg(add(zoo_cfg, f"{client}admin.serverPort=8081\nadmin.serverAddress=0.0.0.0\n"))
    assert config.client.listen == (r"tcp6:2181:interface=\:\:1:backlog=9",)
    assert config.admin.listen == "tcp:8081:interface=0.0.0.0"


def test_the_admin_server_can_be_switched_off(zoo_cfg: Path) -> None:
    config, _ = load_zoo_cfg(add(zoo_cfg, "admin.enableServer=false\n"))
    assert config.admin.listen is None


def test_pem_stores_become_tls_listeners(zoo_cfg: Path, pem_files: dict[str, str]) -> None:
    both = zoo_cfg.parent / "both.pem"
    both.write_text(PEM.format("CERTIFICATE") + PEM.format("PRIVATE KEY"))
    path = add(
        zoo_cfg,
        f"secureClientPort=2281\nssl.keyStore.location={both}\nssl.trustStore.location={pem_files['client_ca']}\n"
        "ssl.keyStore.type=PEM\n",
    )
    config, _ = load_zoo_cfg(path)
    assert config.client.tls == TlsConfig(
        listen=("tcp:2281",), certificate=str(both), private_key=str(both), client_ca=pem_files["client_ca"]
    )


def test_a_secure_port_alone_leaves_the_plain_one_closed(tmp_path: Path, pem_files: dict[str, str]) -> None:
    zoo_cfg = tmp_path / "zoo.cfg"
    both = tmp_path / "both.pem"
    both.write_text(PEM.format("CERTIFICATE") + PEM.format("PRIVATE KEY"))
    zoo_cfg.write_text(
        f"dataDir={tmp_path}\nsecureClientPort=2281\nssl.keyStore.location={both}\nssl.clientAuth=none\n"
    )
    config, _ = load_zoo_cfg(str(zoo_cfg))
    assert config.client.listen == ()
    assert config.client.tls is not None
    assert config.client.tls.client_ca is None


def test_a_java_key_store_is_refused_under_its_own_key(zoo_cfg: Path) -> None:
    store = zoo_cfg.parent / "keystore.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    path = add(zoo_cfg, f"secureClientPort=2281\nssl.keyStore.location={store}\nssl.clientAuth=want\n")
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(path)
    assert {problem.key for problem in caught.value.problems} == {"ssl.keyStore.location", "ssl.clientAuth"}


def test_what_has_no_effect_is_noted(zoo_cfg: Path) -> None:
    _, notes = load_zoo_cfg(add(zoo_cfg, "initLimit=10\nsnapCount=1\ncolour=blue\nforceSync=no\n"))
    assert [note.partition(":")[0] for note in notes] == ["colour", "forceSync", "initLimit", "snapCount"]


def test_of_a_key_that_is_there_twice_the_last_one_counts(zoo_cfg: Path) -> None:
    config, notes = load_zoo_cfg(add(zoo_cfg, "maxCnxns=1\nzookeeper.maxCnxns=2\n"))
    assert config.limits.connections == 2
    assert notes == ["maxCnxns: is there more than once, the last one counts"]


@pytest.mark.parametrize("line", ["maxCnxns", "maxCnxns=", "maxCnxns ="])
def test_a_key_without_a_value_is_refused(zoo_cfg: Path, line: str) -> None:
    with pytest.raises(ConfigError, match='maxCnxns: "" is not right: it must be a whole number'):
        load_zoo_cfg(add(zoo_cfg, f"{line}\n"))


def test_the_data_of_a_zookeeper_is_not_taken_for_ours(zoo_cfg: Path) -> None:
    (zoo_cfg.parent / "version-2").mkdir()
    _, notes = load_zoo_cfg(str(zoo_cfg))
    assert "not imported" in notes[0]


@pytest.mark.parametrize(
    "line", ["skipACL=yes", "enforce.auth.enabled=true", "sessionRequireClientSASLAuth=true", "superUser=bob"]
)
def test_what_would_make_the_server_less_strict_is_refused(zoo_cfg: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        load_zoo_cfg(add(zoo_cfg, f"{line}\n"))


def test_values_are_refused_under_the_names_of_zoo_cfg(zoo_cfg: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(add(zoo_cfg, "tickTime=often\n4lw.commands.whitelist=rouk\n"))
    assert [problem.key for problem in caught.value.problems] == ["tickTime", "4lw.commands.whitelist"]


def test_an_ensemble_becomes_a_cell(zoo_cfg: Path) -> None:
    (zoo_cfg.parent / "myid").write_text("2\n")
    lines = "server.1=host1:2888:3888;2181\nserver.2=host2:2889:3889:participant;0.0.0.0:2182\n"
    config, notes = load_zoo_cfg(add(zoo_cfg, lines + "server.3=host3:2888:3888:observer;client3:2181\n"))
    assert config.member == 2
    assert config.cell.members == {
        1: MemberConfig("host1:2888", "host1:2181", "voter"),
        2: MemberConfig("host2:2889", "host2:2182", "voter"),
        3: MemberConfig("host3:2888", "client3:2181", "learner"),
    }
    assert config.peer_listen == "tcp:2889"
    assert not notes


def test_an_ensemble_whose_lines_do_not_tell_where_clients_connect(zoo_cfg: Path) -> None:
    (zoo_cfg.parent / "myid").write_text("1\n")
    lines = "".join(f"server.{n}=localhost:{2887 + n}:{3887 + n}\n" for n in (1, 2, 3))
    config, _ = load_zoo_cfg(add(zoo_cfg, lines))
    assert {member.client for member in config.cell.members.values()} == {""}
    assert config.client.listen == ("tcp:2181",)


@pytest.mark.parametrize(
    ("client", "endpoint"),
    [
        ("2190", "tcp:2190"),
        ("0.0.0.0:2190", "tcp:2190"),
        ("host:2190", "tcp:2190"),
        ("127.0.0.1:2190", "tcp:2190:interface=127.0.0.1"),
        ("[::1]:2190", r"tcp6:2190:interface=\:\:1"),
    ],
)
def test_an_ensemble_in_the_dynamic_file_is_seen(tmp_path: Path, client: str, endpoint: str) -> None:
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}\ndynamicConfigFile={tmp_path}/zoo.cfg.dynamic\n")
    (tmp_path / "zoo.cfg.dynamic").write_text(f"server.1=a:2888:3888;2181\nserver.2=b:2888:3888;{client}\nversion=0\n")
    (tmp_path / "myid").write_text("2\n")
    config, _ = load_zoo_cfg(str(tmp_path / "zoo.cfg"))
    assert list(config.cell.members) == [1, 2]
    assert config.client.listen == (endpoint,)


def test_problems_of_several_members_have_the_name_of_their_lines(zoo_cfg: Path) -> None:
    (zoo_cfg.parent / "myid").write_text("9\n")
    path = add(zoo_cfg, "server.1=a:2888:3888\nserver.2=a:2888:3888\n")
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(path)
    assert {problem.key for problem in caught.value.problems} == {"myid", "server.2"}


@pytest.mark.parametrize("line", ["sslQuorum=true", "quorum.auth.enableSasl=TRUE", "group.1=1:2", "weight.1=2"])
def test_what_an_ensemble_would_lose_is_refused(zoo_cfg: Path, line: str) -> None:
    (zoo_cfg.parent / "myid").write_text("1\n")
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(add(zoo_cfg, f"server.1=a:2888:3888\nserver.2=b:2888:3888\n{line}\n"))
    assert [problem.key for problem in caught.value.problems] == [line.partition("=")[0]]


def test_only_one_address_of_a_member_is_used(zoo_cfg: Path) -> None:
    config, notes = load_zoo_cfg(add(zoo_cfg, "server.7=a:2888:3888|b:2888:3888\n"))
    assert config.cell.members[7].peer == "a:2888"
    assert notes == ["server.7: only the first of its addresses is used"]


def test_a_server_alone_needs_no_myid(zoo_cfg: Path) -> None:
    config, _ = load_zoo_cfg(add(zoo_cfg, "server.7=host:2888:3888\n"))
    assert config.member == 7


def test_a_myid_that_is_missing_hides_no_other_problem(zoo_cfg: Path) -> None:
    ensemble = "".join(f"server.{n}=host{n}:2888:3888;2181\n" for n in (1, 2))
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(add(zoo_cfg, f"tickTime=often\nskipACL=yes\n{ensemble}"))
    assert [problem.key for problem in caught.value.problems] == ["myid", "skipACL", "tickTime"]
    assert str(zoo_cfg.parent / "myid") in str(caught.value)


def test_what_two_keys_make_of_one_wrong_value_is_said_once(zoo_cfg: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(add(zoo_cfg, "secureClientPort=2281\nssl.keyStore.location=none\nssl.clientAuth=none\n"))
    assert [problem.key for problem in caught.value.problems] == ["ssl.keyStore.location"]


def test_a_zoo_cfg_that_is_read_as_toml_says_how_it_is_read(zoo_cfg: Path) -> None:
    with pytest.raises(ConfigError, match="a zoo.cfg is read with --zoo-cfg"):
        load_toml(str(zoo_cfg))


def test_an_ensemble_of_one_is_the_member_that_myid_names(zoo_cfg: Path) -> None:
    (zoo_cfg.parent / "myid").write_text("7\n")
    config, _ = load_zoo_cfg(add(zoo_cfg, "server.7=host:2888:3888\n"))
    assert config.member == 7
    assert config.cell.members[7].peer == "host:2888"


@pytest.mark.parametrize("line", ["server.1=host", "dataDir="])
def test_a_line_without_meaning_is_refused(zoo_cfg: Path, line: str) -> None:
    (zoo_cfg.parent / "myid").write_text("1\n")
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        load_zoo_cfg(add(zoo_cfg, f"{line}\n"))


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        ("clientPort=99999", {"clientPort"}),
        ("clientPort=", {"clientPort"}),
        ("admin.serverPort=x", {"admin.serverPort"}),
        ("secureClientPort=x", {"ssl.keyStore.location", "ssl.trustStore.location"}),
        ("secureClientPort=x\nssl.keyStore.location=y\nssl.trustStore.location=z", {"secureClientPort"}),
        ("secureClientPort=2281\nssl.clientAuth=none", {"ssl.keyStore.location"}),
        ("dynamicConfigFile=nowhere", {"dynamicConfigFile"}),
    ],
)
def test_what_is_wrong_is_named_as_it_was_written(tmp_path: Path, lines: str, refused: set[str]) -> None:
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        load_zoo_cfg(str(tmp_path / "zoo.cfg"))
    assert {problem.key for problem in caught.value.problems} == refused


def test_a_missing_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=2181\n")
    with pytest.raises(ConfigError, match="dataDir: is missing"):
        load_zoo_cfg(str(tmp_path / "zoo.cfg"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_zoo_cfg(str(tmp_path / "zoo.cfg"))
