"""/commands/NAME: the harmless four-letter words as JSON, under the names that ZooKeeper's admin server gives them."""

from __future__ import annotations

import json

from twisted.web.http import NOT_FOUND
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource

from znoded.admin.view import WordSource, figures, lines_of
from znoded.config import HARMLESS_WORDS

LONG_NAMES = {
    "configuration": "conf", "config": "conf", "connections": "cons", "environment": "envi", "env": "envi",
    "is_read_only": "isro", "monitor": "mntr", "server_stats": "srvr", "stats": "stat", "watch_summary": "wchs",
}  # fmt: skip
#: Words whose every line is a key and a value, and what stands between them.
PAIRS = {"conf": "=", "envi": "=", "dirs": ": ", "srvr": ": "}


class Commands(Resource):
    """Lists the commands at /commands, answers one at /commands/NAME."""

    isLeaf = True

    def __init__(self, words: WordSource) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._words = words

    def render_GET(self, request: IRequest) -> bytes:
        request.setHeader(b"content-type", b"application/json")
        name = b"/".join(request.postpath).decode(errors="replace")
        word = LONG_NAMES.get(name, name)
        if not name:
            answer: dict[str, object] = {"commands": [*HARMLESS_WORDS, *LONG_NAMES]}
        elif word in HARMLESS_WORDS:
            answer = {"command": name, "error": None, **_content(self._words, word)}
        else:
            request.setResponseCode(NOT_FOUND)
            answer = {"command": name, "error": "no such command is served here; /commands lists those that are"}
        return json.dumps(answer, indent=2).encode() + b"\n"


def _content(words: WordSource, word: str) -> dict[str, object]:
    """The answer to a word: its keys and values where it is made of them, else its lines."""
    if word == "mntr":
        return {key: _number(text) for key, text in figures(words).items()}
    lines = lines_of(words, word)
    if word not in PAIRS:
        return {"lines": lines}
    pairs = (line.partition(PAIRS[word]) for line in lines)
    return {key.strip(): _number(text) for key, separator, text in pairs if separator}


def _number(text: str) -> int | float | str:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
