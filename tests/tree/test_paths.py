"""Which paths are valid (protocol facts 5.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.tree.paths import check_name, check_path, parent_of

# fmt: off
GOOD = [
    "/", "/a", "/a/b", "/.b", "/..b", "/a..", "/...", "/a/.../b", "/ ", "/a b", "/é", "/日本語", "/\u00a0", "/\ud7ff",
    "/\uf900", "/\uffef", "/%2F", "/a\\b", "/~", "/e\u0301",
]
BAD = [
    "", "a", "a/b", "/a/", "//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/../b", "/./a", "/a\0", "/\x01", "/\x1f",
    "/\x7f", "/\x80", "/\x9f", "/\ue000", "/\uf8ff", "/\ufff0", "/\uffff", "/\U00010000", "/\U0001f600",
    "/a/\U0010ffff",
]
# fmt: on


@pytest.mark.parametrize("path", GOOD)
def test_good_paths_are_valid(path: str) -> None:
    assert check_path(path.encode())


@pytest.mark.parametrize("path", BAD)
def test_bad_paths_are_not(path: str) -> None:
    assert not check_path(path.encode())


@pytest.mark.parametrize(
    "raw", [b"/\xff\xfe", b"/\xc0\xaf", b"/\xed\xa0\x80", b"/a\x80b", b"/\xc3", b"/\xe2\x82", b"/\xe0\x80\x80"]
)
def test_malformed_utf8_is_not_valid(raw: bytes) -> None:
    assert not check_path(raw)


def is_valid_by_the_rules(path: str) -> bool:
    """The rules, one after the other, on UTF-16 units."""
    units = [int.from_bytes(pair, "big") for pair in _pairs(path.encode("utf-16-be", "surrogatepass"))]
    if any(
        unit <= 0x1F or 0x7F <= unit <= 0x9F or 0xD800 <= unit <= 0xF8FF or 0xFFF0 <= unit <= 0xFFFF for unit in units
    ):
        return False
    if path == "/":
        return True
    return path.startswith("/") and all(name not in ("", ".", "..") for name in path[1:].split("/"))


def _pairs(text: bytes) -> list[bytes]:
    return [text[at : at + 2] for at in range(0, len(text), 2)]


@given(st.lists(st.sampled_from("/.aé ") | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join))
def test_check_path_agrees_with_the_rules_for_any_text(path: str) -> None:
    assert check_path(path.encode()) == is_valid_by_the_rules(path)


@given(st.binary(max_size=12))
def test_check_path_agrees_with_the_rules_for_any_bytes(raw: bytes) -> None:
    path = raw.decode("utf-8", "replace")  # as Java does: U+FFFD is not valid
    assert check_path(raw) == is_valid_by_the_rules(path)


@given(st.lists(st.sampled_from(["a", ".", "é", "\x01", " "]), min_size=1, max_size=4).map("".join))
def test_a_name_is_valid_as_the_path_below_the_root_is(name: str) -> None:
    assert check_name(name.encode()) == check_path(b"/" + name.encode())


def test_no_name_holds_a_slash() -> None:
    assert not check_name(b"a/b")


def test_parents() -> None:
    assert parent_of(b"/a/b") == b"/a"
    assert parent_of(b"/a") == b"/"
    assert parent_of(b"/") == b"/"
