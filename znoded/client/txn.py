"""A transaction, put together step by step:

await Txn(client).when_version("/a", "=", 3).set("/a", b"x").otherwise().get("/a").commit()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from znoded.client.values import Item, encoded

if TYPE_CHECKING:
    from znoded.client.client import Client
    from znoded.client.sessions import Session

Acl = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Committed:
    """`succeeded`: the compares held. The results are a key with its item, or None, for each op, in their order."""

    succeeded: bool
    results: tuple[tuple[str, Item | None], ...]
    revision: int


class Txn:
    """Compares, what is done when they all hold, and what otherwise."""

    def __init__(self, client: Client, session: Session | None = None) -> None:
        """`session`: whose ephemeral keys are created, and without which nothing is done."""
        self._client = client
        self._session = session
        self._compares: list[dict[str, Any]] = []
        self._then: list[dict[str, Any]] = []
        self._else: list[dict[str, Any]] = []
        self._ops = self._then

    def in_session(self, session: Session) -> Self:
        """Do nothing if this session is over. Raises ValueError if it is in another one already."""
        if self._session not in (None, session):
            raise ValueError("the transaction is in another session")
        self._session = session
        return self

    # ---- compares; `relation` is one of = != < >

    def when_value(self, key: str, relation: str, value: bytes) -> Self:
        """Only if the value stands so to this one, as bytes. A key that is not there has another value than any."""
        self._compares.append({"target": "value", "key": key, "is": relation, "value": encoded(value)})
        return self

    def when_version(self, key: str, relation: str, number: int) -> Self:
        """Only if the version stands so to this one. A key that is not there has -1."""
        return self._when("version", key, relation, number)

    def when_create_revision(self, key: str, relation: str, number: int) -> Self:
        """Only if the revision that created it stands so to this one. A key that is not there has 0."""
        return self._when("create_revision", key, relation, number)

    def when_mod_revision(self, key: str, relation: str, number: int) -> Self:
        """Only if the revision that set it last stands so to this one. A key that is not there has 0."""
        return self._when("mod_revision", key, relation, number)

    def when_absent(self, key: str) -> Self:
        """Only if there is no such key."""
        return self.when_create_revision(key, "=", 0)

    def _when(self, target: str, key: str, relation: str, number: int) -> Self:
        self._compares.append({"target": target, "key": key, "is": relation, "number": number})
        return self

    # ---- ops

    def otherwise(self) -> Self:
        """The ops that follow are done when a compare does not hold."""
        self._ops = self._else
        return self

    def get(self, key: str) -> Self:
        """Read it."""
        return self._op("get", key)

    def put(self, key: str, value: bytes, *, parents: bool = False, acl: Acl | None = None) -> Self:
        """Set it, or create it."""
        return self._op("put", key, value=encoded(value), parents=parents, acl=acl)

    def create(
        self,
        key: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
        acl: Acl | None = None,
    ) -> Self:
        """Create it; it must not be there."""
        flags = {"ephemeral": ephemeral, "sequential": sequential, "parents": parents}
        return self._op("create", key, value=encoded(value), **flags, acl=acl)

    def set(self, key: str, value: bytes, version: int = -1) -> Self:
        """Set it; it must be there, with this version if it is not -1."""
        return self._op("set", key, value=encoded(value), version=version)

    def delete(self, key: str, version: int = -1) -> Self:
        """Delete it; it must be there, with this version if it is not -1."""
        return self._op("delete", key, version=version)

    def _op(self, op: str, key: str, **fields: Any) -> Self:
        self._ops.append({"op": op, "key": key, **{name: value for name, value in fields.items() if value is not None}})
        return self

    async def commit(self) -> Committed:
        """Carry it out. Raises ApiError for an op that is refused; Unavailable, and it may have been carried out."""
        fields: dict[str, Any] = {"compare": self._compares, "then": self._then, "else": self._else}
        if self._session is not None:
            fields["session"] = self._session.secret
        answer = await self._client.call("txn", fields, is_repeatable=False)
        results = tuple((each["key"], each["item"] and Item.of(each["item"])) for each in answer["results"])
        return Committed(answer["succeeded"], results, answer["revision"])
