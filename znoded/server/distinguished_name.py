"""Distinguished names as text, as Java writes them.

An x509 identity in an ACL of ZooKeeper is what `X500Principal.getName()` makes of the certificate's subject: RFC 2253,
with some habits of its own. An ACL matches only if every byte of that is the same here, so the name is written from its
DER encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: The attribute types that RFC 2253 gives a keyword; Java writes all others as dotted numbers.
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

#: The ASN.1 types that have a text: UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString.
#: Java 17 reads the bytes of them all as UTF-8, even where that makes no sense, and writes the other types in hex.
STRING_TAGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
ESCAPED = ',=+<>#;"\\'
EXPLICIT_VERSION = 0xA0
#: The first two numbers of an object identifier share one: the top, 0 to 2, stands in it this many times (X.690, 8.19).
ARCS_PER_TOP = 40


class Element(NamedTuple):
    """One element of DER: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def elements(der: bytes) -> Iterator[Element]:
    """The elements that follow each other in `der`, which OpenSSL has parsed before: it is taken to be well formed."""
    position = 0
    while position < len(der):
        tag, length = der[position], der[position + 1]
        start = position + 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[start : start + size], "big")
            start += size
        end = start + length
        yield Element(tag, der[start:end], der[position:end])
        position = end


def subject_of(tbs_certificate: bytes) -> bytes:
    """The DER of the subject's name, from the signed part of a certificate (RFC 5280, 4.1)."""
    (sequence,) = elements(tbs_certificate)
    fields = [field for field in elements(sequence.content) if field.tag != EXPLICIT_VERSION]
    _serial_number, _signature, _issuer, _validity, subject, *_ = fields
    return subject.whole


def rfc2253(name: bytes) -> str:
    """The text of a name in DER: the most specific part first, as `X500Principal.getName()` gives it."""
    (sequence,) = elements(name)
    parts = ["+".join(map(_assertion, elements(part.content))) for part in elements(sequence.content)]
    return ",".join(reversed(parts))


def _assertion(attribute: Element) -> str:
    kind, value = elements(attribute.content)
    dotted = _dotted(kind.content)
    if dotted not in KEYWORDS or value.tag not in STRING_TAGS:
        return f"{KEYWORDS.get(dotted, dotted)}=#{value.whole.hex()}"
    return f"{KEYWORDS[dotted]}={_escaped(value.content.decode(errors='replace'))}"


def _dotted(oid: bytes) -> str:
    numbers = [0]
    for byte in oid:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first, *others = numbers[:-1]
    top = min(first // ARCS_PER_TOP, 2)
    return ".".join(map(str, (top, first - ARCS_PER_TOP * top, *others)))


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in ESCAPED else each for each in value).replace("\0", "\\00")
    inner = text.strip(" \r")
    start = text.find(inner) if inner else len(text)
    outside = (text[:start], text[start + len(inner) :])
    before, after = ("".join(f"\\{each}" for each in part) for part in outside)
    return before + inner + after
