"""Small files of text whose last line is a checksum of all before it: `meta`, `peers` and `renewals`."""

from __future__ import annotations

from crc32c import crc32c

from znoded.zab_raft.errors import DirectoryError

_MARK = b"crc32c "


def with_checksum(text: bytes) -> bytes:
    """The content of a file that holds `text`, which ends with a newline."""
    return text + _last_line(text)


def without_checksum(content: bytes, path: str) -> bytes:
    """The text of the file `path`, which has this content. Raises DirectoryError if it is damaged."""
    text, mark, _ = content.rpartition(_MARK)
    if not mark or content[len(text) :] != _last_line(text):
        raise DirectoryError(f"{path} is damaged: its checksum does not match; restore it from a backup")
    return text


def _last_line(text: bytes) -> bytes:
    return _MARK + b"%08x\n" % crc32c(text)
