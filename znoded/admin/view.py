"""What the admin pages know of a member: all that its four-letter words tell."""

from __future__ import annotations

from typing import Protocol


class WordSource(Protocol):
    """Answers four-letter words, whatever clients are allowed to ask; the server's `Words` is one."""

    def render(self, word: bytes) -> bytes:
        """The answer to `word`."""
        ...


def is_serving(words: WordSource) -> bool:
    """Whether clients are answered in full: not while only read-only ones are."""
    return words.render(b"isro") == b"rw"


def lines_of(words: WordSource, word: str) -> list[str]:
    """The lines of the answer to `word` that are not empty."""
    text = words.render(word.encode()).decode(errors="replace")
    return [line for line in text.splitlines() if line]


def figures(words: WordSource) -> dict[str, str]:
    """The keys and values of the word `mntr`, without its prefix `zk_`; none while clients are not answered."""
    return dict(line.removeprefix("zk_").split("\t", 1) for line in lines_of(words, "mntr") if "\t" in line)
