"""SASL DIGEST-MD5, the server's side: what Java's client and pure-sasl send gets in, and what must not does not."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.server.sasl import DIGEST_URI, DigestMd5Server, SaslFailure, parse_directives

USERS = {"jaasuser": "jaas_password", "super": 'sup,er"\\', "rené": "naïveté", "łódź": "zażółć"}
NONCE = bytes(range(32))


def md5(*parts: bytes) -> bytes:
    return hashlib.md5(b":".join(parts)).digest()


def md5_hex(*parts: bytes) -> bytes:
    return md5(*parts).hex().encode()


def quoted(text: bytes) -> bytes:
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


class Client:
    """A client that follows RFC 2831 unless a test wants otherwise."""

    def __init__(self, user: bytes, password: bytes, *, authzid: bytes | None = None) -> None:
        self._user = user
        self._password = password
        self._authzid = authzid

    def response(self, challenge: bytes, **said: bytes | None) -> bytes:
        """Its answer to the challenge. `said` overrides directives; None leaves one out."""
        nonce = parse_directives(challenge)[b"nonce"]
        session = [md5(self._user, b"zk-sasl-md5", self._password), nonce, b"cnonce"]
        if self._authzid is not None:
            session.append(self._authzid)
        self._key, self._nonce = md5_hex(*session), nonce
        values: dict[str, bytes | None] = {
            "charset": b"utf-8",
            "username": quoted(self._user),
            "realm": b'"zk-sasl-md5"',
            "nonce": quoted(nonce),
            "nc": b"00000001",
            "cnonce": b'"cnonce"',
            "digest_uri": quoted(DIGEST_URI),
            "maxbuf": b"65536",
            "response": self._hash(b"AUTHENTICATE"),
            "qop": b"auth",
            "authzid": None if self._authzid is None else quoted(self._authzid),
            **said,
        }
        return b",".join(
            b"%s=%s" % (name.replace("_", "-").encode(), value) for name, value in values.items() if value is not None
        )

    def _hash(self, purpose: bytes) -> bytes:
        return md5_hex(self._key, self._nonce, b"00000001", b"cnonce", b"auth", md5_hex(purpose, DIGEST_URI))

    def proof(self) -> bytes:
        return b"rspauth=" + self._hash(b"")


@pytest.fixture
def server() -> DigestMd5Server:
    return DigestMd5Server(USERS, NONCE)


def jaas_user() -> Client:
    return Client(b"jaasuser", b"jaas_password")


def test_the_challenge_is_that_of_zookeeper(server: DigestMd5Server) -> None:
    assert server.step(b"") == (
        b'realm="zk-sasl-md5",nonce="AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",charset=utf-8,algorithm=md5-sess'
    )
    assert server.authorization_id is None


def test_a_user_with_the_right_password_gets_in_and_a_proof(server: DigestMd5Server) -> None:
    client = jaas_user()
    assert server.step(client.response(server.step(b""))) == client.proof()
    assert server.authorization_id == b"jaasuser"


@pytest.mark.parametrize(
    ("user", "password", "cnonce", "response", "proof"),
    [
        (
            "super",
            "test",
            b"lhRRNCH4Jnv1Vq2fadIajoFcCtCRWHY9Wurz6lMN",
            b"02b2c30d6620bccb8fc03a2b25976d35",
            b"c014ad19b1edeb92ea29d5084838b449",
        ),
        (
            "rené",
            "naïveté",
            b"+Ujqix5B6S3FqM5p5zUUKJk9V0DmnNcgTWhLaooH",
            b"ea8f7796086dfc886400b6337af11b63",
            b"d5e056ab0efd283712b8a22399215305",
        ),
        (
            "łódź",
            "zażółć",
            b"rgi+VUkn+Cpb6BhYkLnCgzpKAYu2lNzotcEAn/VP",
            b"ee4bf982192b5b0d69a7e08b5e7d7afc",
            b"99d24af8579d26560609e5e19f724fa5",
        ),
        (
            'we,"ird\\',
            'p,"\\=',
            b"7rqljnH0Lk0TN1+0CTdGxovd8Gx3xNMdROTFJ3Te",
            b"fa0a14e9e8a083060cb58e4d82a5583a",
            b"2cc6ad283569a0462b378596925586be",
        ),
    ],
)
def test_what_java_17_sent_gets_in(user: str, password: str, cnonce: bytes, response: bytes, proof: bytes) -> None:
    """Recorded from com.sun.security.sasl.digest, set up as ZooKeeper's client does; it took the proof for good."""
    server = DigestMd5Server({user: password}, b"znoded")
    assert b'nonce="em5vZGVk"' in server.step(b"")
    name = quoted(user.encode())
    sent = (
        b'charset=utf-8,username=%s,realm="zk-sasl-md5",nonce="em5vZGVk",nc=00000001,cnonce="%s",'
        b'digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=%s,qop=auth,authzid=%s'
    )
    assert server.step(sent % (name, cnonce, response, name)) == b"rspauth=" + proof
    assert server.authorization_id == user.encode()


@pytest.mark.parametrize("user", list(USERS))
def test_names_and_passwords_in_utf8_need_not_be_said_to_be_so(server: DigestMd5Server, user: str) -> None:
    client = Client(user.encode(), USERS[user].encode())
    assert server.step(client.response(server.step(b""), charset=None)) == client.proof()
    assert server.authorization_id == user.encode()


def test_names_and_passwords_in_latin_1_as_the_rfc_hashes_them(server: DigestMd5Server) -> None:
    client = Client("rené".encode("latin-1"), "naïveté".encode("latin-1"))
    in_utf8 = quoted("rené".encode())
    assert server.step(client.response(server.step(b""), username=in_utf8)) == client.proof()
    assert server.authorization_id == "rené".encode()


def test_a_name_in_latin_1_is_understood(server: DigestMd5Server) -> None:
    client = Client("rené".encode("latin-1"), "naïveté".encode("latin-1"))
    assert server.step(client.response(server.step(b""), charset=None)) == client.proof()


def test_directives_that_are_optional_may_be_left_out(server: DigestMd5Server) -> None:
    client = jaas_user()
    assert server.step(client.response(server.step(b""), qop=None, charset=None, maxbuf=None)) == client.proof()


def test_directives_that_are_unknown_are_ignored(server: DigestMd5Server) -> None:
    client = jaas_user()
    assert server.step(client.response(server.step(b""), colour=b"blue")) == client.proof()


@pytest.mark.parametrize(
    "client",
    [
        Client(b"jaasuser", b"wrong"),
        Client(b"nobody", b""),
        Client(b"nobody", b"jaas_password"),
        Client(b"Jaasuser", b"jaas_password"),
        Client(b"jaasuser", b"jaas_password", authzid=b"super"),
    ],
)
def test_anybody_else_is_refused(server: DigestMd5Server, client: Client) -> None:
    with pytest.raises(SaslFailure):
        server.step(client.response(server.step(b"")))
    assert server.authorization_id is None


@pytest.mark.parametrize(
    "said",
    [
        {"realm": b'"elsewhere"'},
        {"nonce": b'"AAAA"'},
        {"nc": b"00000002"},
        {"qop": b"auth-int"},
        {"qop": b"auth-conf"},
        {"charset": b"latin-1"},
        {"digest_uri": b'"zookeeper/elsewhere"'},
        {"response": b"0" * 32},
        {"response": b"0"},
        {"cnonce": b'""'},
        *({name: None} for name in ("username", "realm", "nonce", "cnonce", "nc", "digest_uri", "response")),
    ],
)
def test_a_response_that_does_not_fit_the_challenge_is_refused(
    server: DigestMd5Server, said: dict[str, bytes | None]
) -> None:
    with pytest.raises(SaslFailure):
        server.step(jaas_user().response(server.step(b""), **said))
    assert server.authorization_id is None


def test_the_response_of_another_exchange_is_refused(server: DigestMd5Server) -> None:
    other = DigestMd5Server(USERS, b"another nonce")
    response = jaas_user().response(other.step(b""))
    server.step(b"")
    with pytest.raises(SaslFailure, match="nonce"):
        server.step(response)


def test_the_first_token_must_be_empty(server: DigestMd5Server) -> None:
    with pytest.raises(SaslFailure, match="empty"):
        server.step(b"username=x")


def test_nothing_may_follow_the_end(server: DigestMd5Server) -> None:
    server.step(jaas_user().response(server.step(b"")))
    with pytest.raises(SaslFailure, match="over"):
        server.step(b"")


# ---- the list of directives


def test_directives_are_unquoted() -> None:
    assert parse_directives(b'a=1,B = "x,\\"y\\\\" ,\tc=auth-int') == {b"a": b"1", b"b": b'x,"y\\', b"c": b"auth-int"}


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"a",
        b"a=",
        b"=1",
        b"a=1,",
        b",a=1",
        b"a=1,,b=2",
        b"a=1 b=2",
        b'a="1',
        b'a="1\\"',
        b'a="1"2',
        b"a=1,a=2",
        b'a=1,A="1"',
        b"a=\xff",
        b"a=1\x00",
    ],
)
def test_a_list_that_breaks_the_grammar_is_refused(token: bytes) -> None:
    with pytest.raises(SaslFailure):
        parse_directives(token)


def test_a_response_has_a_greatest_size() -> None:
    assert len(parse_directives(b"a=" + b"x" * 4093)[b"a"]) == 4093
    with pytest.raises(SaslFailure, match="4096"):
        parse_directives(b"a=" + b"x" * 4094)


@given(st.binary(max_size=200))
def test_any_bytes_are_either_understood_or_refused(token: bytes) -> None:
    server = DigestMd5Server(USERS, NONCE)
    server.step(b"")
    with pytest.raises(SaslFailure):
        server.step(token)


@given(st.dictionaries(st.from_regex(rb"[a-z-]+", fullmatch=True), st.binary(max_size=30), min_size=1))
def test_what_is_quoted_comes_back(directives: dict[bytes, bytes]) -> None:
    token = b", ".join(b"%s=%s" % (name, quoted(value)) for name, value in directives.items())
    assert parse_directives(token) == directives


# ---- Kazoo's client library


@pytest.mark.parametrize("user", list(USERS))
def test_pure_sasl_gets_in(server: DigestMd5Server, user: str) -> None:
    puresasl = pytest.importorskip("puresasl.client")
    client = puresasl.SASLClient(
        "zk-sasl-md5", "zookeeper", mechanism="DIGEST-MD5", username=user, password=USERS[user]
    )
    assert client.process(None) is None
    response = client.process(server.step(b""))
    client.process(server.step(response))
    assert client.complete
    assert server.authorization_id == user.encode()
