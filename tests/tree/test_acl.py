"""Who may do what, and which ACLs may be stored (protocol facts 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.world import OPEN, only, world
from znoded.jute.ops import Perm
from znoded.jute.primitives import JuteError
from znoded.jute.records import Acl
from znoded.tree.acl import SUPER, allowed, digest_id, fix_acl, redacted
from znoded.tree.options import TreeOptions
from znoded.tree.refusal import Refused

PLAIN = TreeOptions()
ALL_SCHEMES = TreeOptions(sasl_ids=True, x509_ids=True)


def is_valid(scheme: bytes | None, acl_id: bytes | None, options: TreeOptions = PLAIN) -> bool:
    acl = (Acl(31, scheme, acl_id),)
    try:
        return fix_acl(acl, (), options) == acl
    except Refused:
        return False


def test_a_digest_id_is_user_and_hash() -> None:
    assert digest_id(b"u:p") == b"u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="
    assert digest_id(b"super:test") == b"super:D/InIHSb7yEEbrWz8b9l71RjZJU="
    assert digest_id(b"justme").startswith(b"justme:")
    assert digest_id(b"a:b:c").startswith(b"a:")


def test_the_open_acl_allows_everything_to_everyone() -> None:
    assert allowed(None, Perm.ALL, ())
    assert allowed(OPEN, Perm.ADMIN, ())


def test_one_of_the_rights_is_enough() -> None:
    assert allowed(world(Perm.READ), Perm.READ | Perm.ADMIN, ())
    assert not allowed(world(Perm.READ), Perm.WRITE, ())
    assert not allowed(world(0), Perm.ALL, ())
    assert not allowed(world(32), Perm.ALL, ())
    assert allowed(world(-1), Perm.DELETE, ())


def test_super_may_do_everything() -> None:
    assert allowed(world(0), Perm.ADMIN, ((b"ip", b"1.2.3.4"), SUPER))
    assert not allowed(world(0), Perm.ADMIN, ((b"digest", b"super:x"),))


def test_an_identity_matches_by_scheme_and_id() -> None:
    acl = only(b"digest", b"u:h")
    assert allowed(acl, Perm.READ, ((b"ip", b"1.2.3.4"), (b"digest", b"u:h")))
    assert not allowed(acl, Perm.READ, ((b"digest", b"u:other"), (b"sasl", b"u:h")))


@pytest.mark.parametrize(
    ("acl_id", "address", "matches"),
    [
        (b"10.0.0.0/8", b"10.255.1.2", True),
        (b"10.0.0.0/8", b"11.0.0.1", False),
        (b"10.0.0.1", b"10.0.0.1", True),
        (b"010.0.0.1", b"10.0.0.1", True),
        (b"10.0.0.1/32", b"10.0.0.2", False),
        (b"0.0.0.0/0", b"10.0.0.2", True),
        (b"::1", b"::1", True),
        (b"::1", b"0:0:0:0:0:0:0:1", True),
        (b"fe80::/64", b"fe80::1:2:3:4", True),
        (b"fe80::/64", b"fe81::1", False),
        (b"::/0", b"1.2.3.4", False),
        (b"0.0.0.0/0", b"::1", False),
        (b"10.0.0.0/8", b"not an address", False),
        (b"not an address", b"10.0.0.1", False),
        (None, b"10.0.0.1", False),
    ],
)
def test_addresses_match_under_their_mask(acl_id: bytes | None, address: bytes, matches: bool) -> None:
    acl = (Acl(31, b"ip", acl_id),)
    assert allowed(acl, Perm.READ, ((b"ip", address),)) == matches


def test_the_sasl_superuser_matches_every_sasl_id() -> None:
    assert allowed(only(b"sasl", b"bob"), Perm.READ, ((b"sasl", b"super"),))
    assert allowed(only(b"sasl", b"bob"), Perm.READ, ((b"sasl", b"bob"),))
    assert not allowed(only(b"sasl", b"bob"), Perm.READ, ((b"sasl", b"eve"),))


@pytest.mark.parametrize(
    ("scheme", "acl_id"),
    [
        (b"world", b"anyone"),
        (b"digest", b"u:h"),
        (b"digest", b":x"),
        (b"digest", b"a:b:"),
        (b"ip", b"1.2.3.4"),
        (b"ip", b"01.2.3.4"),
        (b"ip", b"+1.2.3.4"),
        (b"ip", b"1.2.3.4/0"),
        (b"ip", b"1.2.3.4/+8"),
        (b"ip", b"1.2.3.4/32"),
        (b"ip", b"::1"),
        (b"ip", b"fe80::1/128"),
    ],
)
def test_valid_ids(scheme: bytes, acl_id: bytes) -> None:
    assert is_valid(scheme, acl_id)


@pytest.mark.parametrize(
    ("scheme", "acl_id"),
    [
        (b"world", b"someone"),
        (b"world", b""),
        (b"nope", b"x"),
        (b"nope", None),
        (b"", b"anyone"),
        (b"super", b""),
        (None, b"anyone"),
        (None, None),
        (b"digest", b"abc"),
        (b"digest", b"a:b:c"),
        (b"digest", b"u:"),
        (b"digest", b":"),
        (b"digest", b""),
        (b"sasl", b"bob"),
        (b"x509", b"CN=bob"),
        *(
            (b"ip", text.encode())
            for text in (
                "",
                "1.2.3",
                "1.2.3.4.5",
                "256.1.1.1",
                "1.2.3.4/33",
                "1.2.3.4/-1",
                "1.2.3.4/",
                "1.2.3.4/8/8",
                "1..2.3",
                "::1/129",
                "a.b.c.d",
                " 1.2.3.4",
                "1.2.3.4 ",
                "-1.2.3.4",
                "localhost",
                "::1/",
                "1::2::3",
                "fe80::1%eth0",
                "::ffff:1.2.3.4",
                "é",
                "12345678901.1.1.1",
            )  # fmt: skip
        ),
    ],
)
def test_invalid_ids(scheme: bytes | None, acl_id: bytes | None) -> None:
    assert not is_valid(scheme, acl_id)


@pytest.mark.parametrize("scheme", [b"world", b"digest", b"ip"])
def test_a_null_id_of_a_known_scheme_cannot_be_made_sense_of(scheme: bytes) -> None:
    with pytest.raises(JuteError):
        fix_acl((Acl(31, scheme, None),), (), PLAIN)


def test_sasl_and_x509_ids_are_valid_where_clients_can_have_them() -> None:
    for name in (b"bob", b"bob@REALM", b"bob/host@REALM", b"bob@", b"@REALM", b"@", b"bob/@REALM", b"/host@REALM"):
        assert is_valid(b"sasl", name, ALL_SCHEMES)
    for name in (b"a@b@c", b"a/b/c@d"):
        assert not is_valid(b"sasl", name, ALL_SCHEMES)
    for name in (b"CN=bob", b"CN=bob,OU=a b, O = x", b'CN="a,b"', b"CN=a\\,b+OU=c", b"1.2.3=#0aff", b""):
        assert is_valid(b"x509", name, ALL_SCHEMES)
    for name in (b"bob", b"CN=bob,", b"CN=a,b", b"=x"):
        assert not is_valid(b"x509", name, ALL_SCHEMES)


def test_an_x509_name_has_attributes_that_java_knows() -> None:
    known = (
        b"cn=x",
        b"EmailAddress=x",
        b"DNQ=x",
        b"S=x",
        b"0.39=x",
        b"2.999=x",
        b"oid.1.2.3=x",
        b"CN=\\#zz",
        b'CN="#zz"',
    )
    unknown = (
        b"FOO=x",
        b"E=x",
        b"SN=x",
        b"CN1=x",
        b"1=x",
        b"1.40=x",
        b"3.1=x",
        b"9.9.9=x",
        b"1..2=x",
        b"CN=#zz",
        b"CN= #0",
    )
    assert [name for name in known if not is_valid(b"x509", name, ALL_SCHEMES)] == []
    assert [name for name in unknown if is_valid(b"x509", name, ALL_SCHEMES)] == []


@pytest.mark.parametrize("acl", [None, ()])
def test_an_acl_without_entries_is_invalid(acl: tuple[Acl, ...] | None) -> None:
    with pytest.raises(Refused):
        fix_acl(acl, (), PLAIN)


def test_auth_becomes_an_entry_for_each_identity_that_was_proved() -> None:
    identities = ((b"ip", b"1.2.3.4"), (b"digest", b"u:h"), SUPER, (b"sasl", b"bob"), (b"x509", b"CN=x"))
    assert fix_acl((Acl(1, b"auth", None), Acl(2, b"world", b"anyone")), identities, PLAIN) == (
        Acl(1, b"digest", b"u:h"),
        Acl(1, b"sasl", b"bob"),
        Acl(1, b"x509", b"CN=x"),
        Acl(2, b"world", b"anyone"),
    )


def test_auth_of_who_proved_nothing_is_invalid() -> None:
    with pytest.raises(Refused):
        fix_acl((Acl(31, b"auth", b""),), ((b"ip", b"1.2.3.4"), SUPER), PLAIN)


def test_the_first_bad_entry_decides() -> None:
    nameless, unknown = Acl(31, b"world", None), Acl(31, b"nope", b"x")
    with pytest.raises(JuteError):
        fix_acl((nameless, unknown), (), PLAIN)
    with pytest.raises(Refused):
        fix_acl((unknown, nameless), (), PLAIN)


def test_duplicates_are_left_out_before_expansion() -> None:
    twice = (*world(1), *only(b"digest", b"u:h"), *world(1))
    assert fix_acl(twice, (), PLAIN) == (*world(1), *only(b"digest", b"u:h"))
    mine = ((b"digest", b"u:h"),)
    assert fix_acl((*only(b"digest", b"u:h"), Acl(31, b"auth", b"")), mine, PLAIN) == only(b"digest", b"u:h") * 2


def test_hashes_are_hidden_and_other_ids_are_not() -> None:
    acl = (
        Acl(31, b"digest", b"u:hash"),
        Acl(1, b"world", b"anyone"),
        Acl(1, b"digest", b":x"),
        Acl(1, b"digest", None),
    )
    assert redacted(acl) == (
        Acl(31, b"digest", b"u:x"),
        Acl(1, b"world", b"anyone"),
        Acl(1, b"digest", b":x"),
        Acl(1, b"digest", b":x"),
    )


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_no_ip_id_makes_the_check_fail(acl_id: bytes, address: bytes) -> None:
    assert allowed((Acl(31, b"ip", acl_id),), Perm.READ, ((b"ip", address),)) in (True, False)
    assert is_valid(b"ip", acl_id) in (True, False)
