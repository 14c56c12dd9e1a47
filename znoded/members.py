"""`znoded members`: asks a member's admin listener who is in the cell, and prints a table of it."""

from __future__ import annotations

import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

TIMEOUT_S = 5.0
ANSWER_BYTES_MOST = 1 << 20
NO_PAGE = "a member that stands alone has no such page, nor has another listener than the admin's"
HEADINGS = ("number", "role", "phase", "connected", "lag", "peer", "client", "blocks")

#: A proxy that the environment names is not for the operator's own machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """The admin listener did not tell; the message says why."""


def show_members(admin: str) -> int:
    """Print what the admin listener at the URL `admin` tells. Returns the exit status: 0 if nothing is missing."""
    try:
        answer = _ask(admin)
        print("\n".join(_lines(answer)))
    except NoAnswer as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if not answer["leader"] or any(member["blocks"] for member in answer["members"]) else 0


def _ask(admin: str) -> Any:
    url = f"{'' if '://' in admin else 'http://'}{admin.rstrip('/')}/members"
    try:
        with _OPENER.open(url, timeout=TIMEOUT_S) as response:
            return json.loads(response.read(ANSWER_BYTES_MOST))
    except urllib.error.HTTPError as error:
        told = NO_PAGE if error.code == HTTPStatus.NOT_FOUND else _error_in(error)
        raise NoAnswer(f"{url} answers {error.code}: {told}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise NoAnswer(f"{url} does not answer: {why}; --admin names the URL of a member's admin listener") from error


def _error_in(answer: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(answer.read(ANSWER_BYTES_MOST))["error"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return answer.reason


def _lines(answer: Mapping[str, Any]) -> Iterable[str]:
    """The text for an answer. Raises NoAnswer if it is from something else."""
    try:
        leads = f"member {answer['leader']} leads" if answer["leader"] else "no leader is known"
        rows = [_row(member) for member in answer["members"]]
        first = f"member {answer['member']} answers; {leads}, in term {answer['term']}"
    except (KeyError, TypeError) as error:
        raise NoAnswer(f"what answers is no member of a cell: there is no {error} in its answer") from error
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    yield first
    yield ""
    for row in (HEADINGS, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(member: Mapping[str, Any]) -> Sequence[str]:
    """The leader has a star; its own connection is no question."""
    lag = member["lag_entries"]
    return (
        f"{member['number']} *" if member["leads"] else str(member["number"]),
        member["role"],
        member["phase"],
        "yes" if member["connected"] else "no",
        "?" if lag is None else str(lag),
        member["peer"],
        member["client"],
        member["blocks"],
    )
