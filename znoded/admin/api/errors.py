"""The named errors of the API. Each says what happened and what to do about it."""

from __future__ import annotations

from collections.abc import Callable

from znoded.jute.errors import ErrorCode


class ApiError(Exception):
    """An answer that is no success. `details` are further fields of the error."""

    def __init__(self, code: str, status: int, message: str, action: str, **details: object) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, object] = {"code": code, "message": message, "action": action, **details}

    @property
    def code(self) -> str:
        """Its name."""
        return str(self.body["code"])


def bad_request(message: str, field: str = "") -> ApiError:
    """The request is not one of those that the document describes."""
    return ApiError(
        "bad_request", 400, message, "Correct the request: /v1/openapi.json describes each one.", field=field
    )


def no_such_page(path: str) -> ApiError:
    """There is nothing under this path."""
    return ApiError("no_such_page", 404, f"there is no {path}", "Look for the path in /v1/openapi.json.")


def no_such_method(method: str, allowed: str) -> ApiError:
    """The path is there for another method."""
    return ApiError("no_such_method", 405, f"{method} is not answered here", f"Use {allowed}.")


def wrong_host() -> ApiError:
    """The request is for a name that is none of the listener's, as that of a page that was bound to its address."""
    message = "the API is not known by the name in the Host header"
    return ApiError("wrong_host", 421, message, "Use its address or localhost, or list the name in api.hosts.")


def auth_failed(message: str) -> ApiError:
    """The Authorization header is no good."""
    return ApiError("auth_failed", 401, message, "Send Authorization: Basic base64(user:password), or none.")


def no_auth(key: str = "") -> ApiError:
    """An ACL forbids it."""
    return ApiError(
        "no_auth", 403, "the ACL of a key gives no right to this", "Show who you are with HTTP Basic.", key=key
    )


def no_such_key(key: str = "") -> ApiError:
    """The key, or the parent that it needs, is not there."""
    action = 'Create it first; "parents": true creates what is missing above a key.'
    return ApiError("no_such_key", 404, "there is no such key, or no parent for it", action, key=key)


def session_expired() -> ApiError:
    """The session is over, or never was."""
    action = "Create a new session. What the old one held is free: its locks, elections and ephemeral keys."
    return ApiError("session_expired", 410, "there is no such session any more", action)


def not_leader() -> ApiError:
    """The member neither leads nor reaches the leader, so it can't say what is newest, nor write."""
    message = "this member does not lead and does not reach the leader"
    action = 'Ask another member. A read can be had here with "consistency": "serializable".'
    return ApiError("not_leader", 503, message, action)


def outcome_unknown() -> ApiError:
    """The write was sent on its way and nothing was heard of it."""
    message = "it is not known whether the write took effect, or will"
    return ApiError("outcome_unknown", 504, message, "Read what you wanted to change before you try again.")


def busy() -> ApiError:
    """A limit of what may go on at one time is met."""
    return ApiError("busy", 429, "too much is going on at this member", "Come back in a second, or ask another member.")


def disk_full() -> ApiError:
    """Writes are refused."""
    return ApiError(
        "disk_full", 507, "the member's disk is full", "Free space there; it goes on by itself. Reads work."
    )


def compacted(oldest: int) -> ApiError:
    """The history does not reach back so far."""
    message = f"history begins at revision {oldest}"
    action = "Read what is there now with range, then watch after the revision of that answer."
    return ApiError("compacted", 410, message, action, oldest=oldest)


def future_revision(revision: int) -> ApiError:
    """There is no such revision yet."""
    message = f"the newest revision is {revision}"
    return ApiError(
        "future_revision", 400, message, "Use a revision that an answer of this cell gave you.", newest=revision
    )


def value_too_large(limit_bytes: int) -> ApiError:
    """The request does not fit into a command."""
    message = f"the keys and values of one request may have {limit_bytes} bytes together"
    return ApiError("value_too_large", 413, message, "Send less, or raise limits.frame_bytes.", limit_bytes=limit_bytes)


def lock_timeout(lock: str) -> ApiError:
    """It was not this contender's turn in time."""
    action = "Try again, or wait longer. This contender has left the line."
    return ApiError("lock_timeout", 409, "the lock was not free in time", action, lock=lock)


def lock_lost(lock: str) -> ApiError:
    """Somebody else deleted the contender's key, or set it, as a later request does that takes it over."""
    message = "the key that stood in line for the lock was deleted, or written to by another"
    action = "Acquire again, with the same contender if you chose one; find out who writes to keys below the lock."
    return ApiError("lock_lost", 409, message, action, lock=lock)


def slow_reader(revision: int, limit_bytes: int) -> ApiError:
    """A stream's client does not read; the end of the stream tells it."""
    message = f"more than {limit_bytes} bytes were waiting to be read, or nothing was read for a minute"
    action = "Read faster, or watch less; go on after the last revision that you got."
    return ApiError("slow_reader", 429, message, action, revision=revision)


def stopping() -> ApiError:
    """The member ends."""
    return ApiError("stopping", 503, "this member stops", "Ask another member; a watch goes on there.")


def internal() -> ApiError:
    """A fault of ours; the log has the rest."""
    return ApiError("internal", 500, "the member failed to answer", "Report it with what the member's log says.")


def _conflict(code: str, message: str, action: str) -> Callable[[str], ApiError]:
    return lambda key: ApiError(code, 409, message, action, key=key)


_BY_ERROR: dict[int, Callable[[str], ApiError]] = {
    ErrorCode.NO_NODE: no_such_key,
    ErrorCode.NO_AUTH: no_auth,
    ErrorCode.SESSION_EXPIRED: lambda _key: session_expired(),
    ErrorCode.SYSTEM_ERROR: lambda _key: disk_full(),
    ErrorCode.NODE_EXISTS: _conflict("key_exists", "there is such a key", "Use put or set, or another key."),
    ErrorCode.BAD_VERSION: _conflict("bad_version", "the key has another version", "Read it again, then decide."),
    ErrorCode.NOT_EMPTY: _conflict("not_empty", "there are keys below this one", "Delete those first."),
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: _conflict(
        "parent_is_ephemeral", "an ephemeral key has no keys below it", "Put it elsewhere, or make the parent another."
    ),
    ErrorCode.INVALID_ACL: lambda key: bad_request("the ACL is no good, or empties when applied to who asks", key),
    ErrorCode.BAD_ARGUMENTS: lambda key: bad_request(
        "the key is no valid path, may not be deleted, or is ephemeral without a session", key
    ),
    ErrorCode.QUOTA_EXCEEDED: lambda key: ApiError(
        "quota_exceeded", 507, "a quota or a limit would be exceeded",
        "Delete something, raise the quota, or ask for less at a time.", key=key,
    ),
}  # fmt: skip


def of_refusal(error: int, key: str = "", op: int | None = None) -> ApiError:
    """What a refusal of the tree is called. `op`: which op of a transaction was refused."""
    made = _BY_ERROR[error](key) if error in _BY_ERROR else internal()
    if op is not None:
        made.body["op"] = op
    return made
