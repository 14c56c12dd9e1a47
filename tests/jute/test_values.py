"""The numbers of ops, errors, flags and permissions are the protocol's (protocol facts 1.3, 2, 3, 5.1, 6.1)."""

from __future__ import annotations

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import AUTH_XID, NOTIFICATION_XID, PING_XID, SET_WATCHES_XID, CreateFlags, Op, Perm


def test_special_xids() -> None:
    assert (NOTIFICATION_XID, PING_XID, AUTH_XID, SET_WATCHES_XID) == (-1, -2, -4, -8)


def test_every_op_of_the_protocol_is_there() -> None:
    assert sorted(Op) == [-11, -10, -1, *range(10), *range(11, 23), *range(100, 108)]


def test_the_error_codes_are_those_that_servers_send_and_clients_know() -> None:
    known = {0, -1, -2, -5, -6, -8, -12, -13, -14, *range(-103, -100), -108, *range(-112, -109)}
    known |= {-114, -115, *range(-121, -117), -123, -124, -125, -127}
    assert set(ErrorCode) == known


def test_create_flags_are_0_to_6() -> None:
    assert sorted(CreateFlags) == list(range(7))


def test_all_permissions_are_the_five_bits() -> None:
    assert Perm.READ | Perm.WRITE | Perm.CREATE | Perm.DELETE | Perm.ADMIN == Perm.ALL
    assert int(Perm.ALL) == 31
