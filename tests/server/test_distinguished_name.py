"""Distinguished names as text. Each expected text is what Java 17's X500Principal.getName() answered."""

from __future__ import annotations

import pytest

from znoded.server.distinguished_name import rfc2253

Attribute = tuple[str, int, bytes]

UTF8, PRINTABLE, T61, IA5, GENERAL, UNIVERSAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E
OCTETS = 0x04

# Object identifiers in DER, by the keywords of RFC 2253.
KEYWORD = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
}
CN = KEYWORD["CN"]
SERIAL_NUMBER = "550405"
EMAIL_ADDRESS = "2a864886f70d010901"
ABOVE_2_39 = "883703"  # 2.999.3


def tlv(tag: int, content: bytes) -> bytes:
    length = len(content)
    return bytes([tag, length] if length < 128 else [tag, 0x82, length >> 8, length & 0xFF]) + content


def attribute(oid: str, tag: int, value: bytes) -> bytes:
    return tlv(0x30, tlv(0x06, bytes.fromhex(oid)) + tlv(tag, value))


def name(*parts: list[Attribute]) -> bytes:
    return tlv(0x30, b"".join(tlv(0x31, b"".join(attribute(*each) for each in part)) for part in parts))


@pytest.mark.parametrize(
    ("der", "text"),
    [
        (name(), ""),
        (name([(CN, UTF8, b"ann")]), "CN=ann"),
        (name([(CN, UTF8, b"x" * 200)]), "CN=" + "x" * 200),
    ],
)
def test_a_name_of_few_parts(der: bytes, text: str) -> None:
    assert rfc2253(der) == text


def test_the_last_part_comes_first() -> None:
    parts = [[(KEYWORD["C"], PRINTABLE, b"DE")], [(KEYWORD["O"], UTF8, b"Acme")], [(CN, UTF8, b"ann")]]
    assert rfc2253(name(*parts)) == "CN=ann,O=Acme,C=DE"


def test_a_part_of_two_keeps_its_order() -> None:
    parts = [[(KEYWORD["OU"], UTF8, b"b"), (CN, UTF8, b"a")], [(KEYWORD["O"], UTF8, b"o")]]
    assert rfc2253(name(*parts)) == "O=o,OU=b+CN=a"


def test_the_types_of_rfc_2253_have_keywords() -> None:
    parts = [[(oid, UTF8, b"x")] for oid in KEYWORD.values()]
    assert rfc2253(name(*parts)) == "DC=x,UID=x,OU=x,O=x,STREET=x,ST=x,L=x,C=x,CN=x"


def test_other_types_are_numbers_and_their_values_hex() -> None:
    parts = [[(EMAIL_ADDRESS, IA5, b"a@b.c")], [(SERIAL_NUMBER, PRINTABLE, b"1")], [(ABOVE_2_39, UTF8, b"x")]]
    assert rfc2253(name(*parts)) == "2.999.3=#0c0178,2.5.4.5=#130131,1.2.840.113549.1.9.1=#16056140622e63"


@pytest.mark.parametrize(
    ("tag", "value", "text"),
    [
        (UTF8, "łódź 😀".encode(), "łódź 😀"),
        (PRINTABLE, b"p", "p"),
        (T61, b"t", "t"),
        (T61, b"\xe9", "\N{REPLACEMENT CHARACTER}"),
        (IA5, b"i", "i"),
        (GENERAL, b"g", "g"),
        (BMP, b"\0b", "\\00b"),
        (UNIVERSAL, b"\0\0\0u", "#1c0400000075"),
        (OCTETS, b"octets", "#04066f6374657473"),
    ],
)
def test_values_of_all_types(tag: int, value: bytes, text: str) -> None:
    assert rfc2253(name([(CN, tag, value)])) == f"CN={text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b',=+<>#;"\\/', '\\,\\=\\+\\<\\>\\#\\;\\"\\\\/'),
        (b"  a b \r", "\\ \\ a b\\ \\\r"),
        (b"   ", "\\ \\ \\ "),
        (b"", ""),
        (b"a\0b", "a\\00b"),
    ],
)
def test_special_characters_are_escaped(value: bytes, text: str) -> None:
    assert rfc2253(name([(CN, UTF8, value)])) == f"CN={text}"
