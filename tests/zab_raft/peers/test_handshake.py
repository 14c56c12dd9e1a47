"""The handshake: who proves what to whom, and what a recording of it is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.jute.primitives import JuteError
from znoded.zab_raft.peers.handshake import (
    HANDSHAKE_BYTES_LIMIT,
    Accepting,
    Dialling,
    Hello,
    Mistrusted,
    Purpose,
    Refused,
    verdict,
)
from znoded.zab_raft.peers.identity import INCARNATION_BYTES, Identity

SECRET = b"open sesame"
FIRST = Identity(bytes(16), 1, 11, bytes([1]) * INCARNATION_BYTES)
SECOND = Identity(bytes([9]) * 16, 254, 2**40, bytes([2]) * INCARNATION_BYTES)
NONCES = st.binary(min_size=32, max_size=32)


def hello(nonce: bytes = bytes(32), purpose: Purpose = Purpose.FRAMES) -> Hello:
    return Hello(purpose, FIRST, 254, "first.example:2888", nonce)


def pair(secret: bytes = SECRET, other: bytes = SECRET, nonce: bytes = bytes(32)) -> tuple[Dialling, Accepting]:
    return Dialling(hello(nonce), secret), Accepting(SECOND, other, bytes([7]) * 32)


@given(st.sampled_from([SECRET, b""]), st.sampled_from(Purpose), NONCES)
def test_both_sides_learn_who_the_other_is(secret: bytes, purpose: Purpose, nonce: bytes) -> None:
    dialling, accepting = Dialling(hello(nonce, purpose), secret), Accepting(SECOND, secret, nonce)
    assert accepting.greeted(dialling.hello) == hello(nonce, purpose)
    assert dialling.replied(accepting.reply) == SECOND
    accepting.proven(dialling.proof)
    dialling.judged(verdict())
    assert max(map(len, (dialling.hello, dialling.proof, accepting.reply))) <= HANDSHAKE_BYTES_LIMIT


def test_an_acceptor_without_the_secret_is_found_out_by_the_dialler() -> None:
    dialling, accepting = pair(other=b"guessed")
    accepting.greeted(dialling.hello)
    with pytest.raises(Mistrusted, match="different secrets"):
        dialling.replied(accepting.reply)


def test_a_dialler_without_the_secret_is_found_out_by_the_acceptor() -> None:
    dialling, accepting = pair()
    accepting.greeted(dialling.hello)
    dialling.replied(accepting.reply)
    with pytest.raises(Mistrusted, match="different secrets"):
        accepting.proven(dialling.proof[:-1] + bytes([dialling.proof[-1] ^ 1]))


@pytest.mark.parametrize(("secret", "other"), [(SECRET, b""), (b"", SECRET)])
def test_a_secret_on_one_side_only_is_no_secret(secret: bytes, other: bytes) -> None:
    dialling, accepting = pair(secret, other)
    accepting.greeted(dialling.hello)
    with pytest.raises(Mistrusted, match="only one of the two"):
        dialling.replied(accepting.reply)


def test_a_replayed_dialler_is_refused() -> None:
    dialling, accepting = pair()
    accepting.greeted(dialling.hello)
    dialling.replied(accepting.reply)
    again = Accepting(SECOND, SECRET, bytes([8]) * 32)
    again.greeted(dialling.hello)
    with pytest.raises(Mistrusted, match="not fresh"):
        again.proven(dialling.proof)


def test_a_replayed_acceptor_is_refused() -> None:
    dialling, accepting = pair()
    accepting.greeted(dialling.hello)
    with pytest.raises(Mistrusted, match="not fresh"):
        pair(nonce=bytes([1]) * 32)[0].replied(accepting.reply)


def test_an_acceptor_s_proof_is_none_for_a_dialler() -> None:
    dialling, accepting = pair()
    accepting.greeted(dialling.hello)
    dialling.replied(accepting.reply)
    with pytest.raises(Mistrusted):
        accepting.proven(dialling.proof[:-32] + accepting.reply[-32:])


@given(st.data())
def test_no_changed_byte_goes_unnoticed(data: st.DataObject) -> None:
    dialling, accepting = pair()
    changed = bytearray(dialling.hello)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))

    def shake() -> None:
        accepting.greeted(bytes(changed))
        dialling.replied(accepting.reply)

    with pytest.raises((JuteError, Mistrusted)):
        shake()


@given(st.binary(max_size=200), st.integers(1, 5), st.booleans())
def test_garbage_raises_only_what_is_expected(garbage: bytes, kind: int, with_head: bool) -> None:
    payload = b"znoded peer\n\0\1" + bytes([kind]) + garbage if with_head else garbage
    dialling, accepting = pair()
    for take in (accepting.greeted, dialling.replied, dialling.judged):
        try:
            take(payload)
        except (JuteError, Mistrusted, Refused):
            pass


def test_a_reason_is_handed_on() -> None:
    dialling, accepting = pair()
    accepting.greeted(dialling.hello)
    for take in (accepting.greeted, accepting.proven, dialling.replied, dialling.judged):
        with pytest.raises(Refused, match="^because$"):
            take(verdict("because"))
    assert len(verdict("x" * 10_000)) < HANDSHAKE_BYTES_LIMIT


def test_a_later_format_is_told_from_garbage() -> None:
    with pytest.raises(Mistrusted, match="one side speaks format 9 of the peer protocol, the other 1"):
        pair()[1].greeted(b"znoded peer\n\0\x09\1")


@pytest.mark.parametrize("cut", [0, 3, 16, 80])
def test_a_cut_hello_is_none(cut: int) -> None:
    with pytest.raises(JuteError):
        pair()[1].greeted(hello().encode()[:cut])


def test_an_address_that_is_not_text_is_refused() -> None:
    payload = hello().encode().replace(b"first.example", b"\xff" * 13)
    with pytest.raises(JuteError, match="not text"):
        pair()[1].greeted(payload)
