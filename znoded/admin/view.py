"""What the admin pages need to know of a member."""

from __future__ import annotations

from typing import Protocol


class MemberView(Protocol):
    """A member as the admin pages see it; the server's `Member` is one."""

    @property
    def serving(self) -> bool:
        """Whether clients are answered."""
        ...

    def render_word(self, word: bytes) -> bytes:
        """The answer to a four-letter word, whatever the allow-list for clients says."""
        ...


def figures(member: MemberView) -> dict[str, str]:
    """The keys and values of the word `mntr`, without its prefix `zk_`."""
    lines = member.render_word(b"mntr").decode().splitlines()
    return dict(line.removeprefix("zk_").split("\t", 1) for line in lines if "\t" in line)
