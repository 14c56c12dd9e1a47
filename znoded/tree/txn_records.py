"""The record of TXN, the command behind the native API's writes, and of its reply. No client's request becomes one.

request   long owner, vector<compare>, vector<op> then, vector<op> otherwise
compare   ustring path, int target, int relation, buffer value, long number
op        int kind, ustring path, buffer data, vector<ACL> or null (open), int flags, int version, ustring infix
          or null, boolean parents
reply     boolean holds, int failed op or -1, int its error, vector<{ustring path, buffer znode}>
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, TypeAlias

from znoded.jute.fields import Boolean, Buffer, Codec, Int, Long, Record, UString, record, vector_of
from znoded.jute.records import Acls

#: A number of a compare that stands for no znode; versions leave it out when they wrap (`znode.next_version`).
NO_VERSION = -1
NO_REVISION = 0
NONE_FAILED = -1


class Target(IntEnum):
    """What of a znode is compared."""

    VALUE = 0
    VERSION = 1
    CREATE_REVISION = 2
    MOD_REVISION = 3


class Relation(IntEnum):
    """How it has to stand to the value or number that is given."""

    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    GREATER = 3


class Kind(IntEnum):
    """What an op does. PUT sets the data, or creates the znode if it is not there."""

    GET = 0
    CREATE = 1
    PUT = 2
    SET = 3
    DELETE = 4


@record
class Compare(Record):
    """A condition. `value` counts for Target.VALUE, `number` for the others."""

    path: UString
    target: Int
    relation: Int
    value: Buffer
    number: Long


@record
class TxnOp(Record):
    """One op. Which fields count depends on its kind: `tree.txn` says so."""

    kind: Int
    path: UString
    data: Buffer
    acl: Acls
    flags: Int
    version: Int
    infix: UString
    parents: Boolean


@record
class OpResult(Record):
    """The path of a znode, and the znode as it is stored; null if there is none, or none any more."""

    path: UString
    node: Buffer


Compares: TypeAlias = Annotated[tuple[Compare, ...] | None, vector_of(Codec(Compare.decode, Compare.encode, 24))]
TxnOps: TypeAlias = Annotated[tuple[TxnOp, ...] | None, vector_of(Codec(TxnOp.decode, TxnOp.encode, 29))]
OpResults: TypeAlias = Annotated[tuple[OpResult, ...] | None, vector_of(Codec(OpResult.decode, OpResult.encode, 8))]


@record
class TxnRequest(Record):
    """`owner` is the session that has to live, and that ephemerals belong to; 0: none."""

    owner: Long
    compares: Compares
    then: TxnOps
    otherwise: TxnOps


@record
class TxnReply(Record):
    """`holds`: the ops of `then` were meant. With `failed` from 0 on, that op was refused, and all were undone."""

    holds: Boolean
    failed: Int
    err: Int
    results: OpResults
