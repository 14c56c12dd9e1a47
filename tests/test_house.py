"""The rules of the house: who may know whom, which rooms are pure, and what no file may hold.

docs/architecture.md explains them.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "znoded"
SOURCES = sorted(HOUSE.rglob("*.py"))
OTHER_SOURCES = sorted(
    path for folder in ("tests", "bench", "examples") for path in (ROOT / folder).rglob("*.py") if path.stat().st_size
)
KEPT_FOLDERS = ("znoded", "twisted", "tests", "bench", "examples", "conf", "docs", "newsfragments", ".ci")
TEXT_SUFFIXES = {".py", ".toml", ".cfg", ".md", ".service", ".c", ".h", ".java", ".go", ".js", ".sh", ".txt", ""}

#: Room, or file at the top of the house -> what of the house it may import beside itself and the version.
MAY_IMPORT = {
    "jute": set(),
    "tree": {"jute"},
    "watches": {"jute"},
    "zab_raft": {"addresses", "jute"},
    "server": {"jute", "tree", "watches", "zab_raft", "config", "config_values", "exit"},
    "admin": {"config", "garbage_collection", "jute", "server", "tree"},
    "client": set(),
    "recipes": set(),
    "fencing": set(),
    "config": {"config_values", "addresses", "zoo_cfg"},
    "config_values": {"addresses"},
    "zoo_cfg": {"addresses"},
    "addresses": set(),
    "exit": set(),
    "garbage_collection": set(),
    "members": set(),
    "recover": {"still_there", "tree", "zab_raft"},
    "still_there": {"zab_raft"},
    "command": {"config", "members", "recover"},
    "service": {"server", "admin", "config", "exit", "garbage_collection"},
}

PURE_ROOMS = {"jute", "tree", "watches"}
IMPURE_MODULES = {
    "asyncio", "concurrent", "datetime", "io", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "twisted", "uuid",
}  # fmt: skip
IMPURE_BUILTINS = {"open", "input", "print"}
SOURCE_LINES_MOST = 600
#: Written so that it does not find itself.
FORBIDDEN = re.compile(r"/wor[k]/|/opt/z[n]\b|/hom[e]/\w|\bTOD[O]\b|\bFIXM[E]\b")
#: Python 3.11 before 3.11.5 matches with these what it should not (its issue 106052).
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """The full name of everything a file imports, also for its type checker and inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


@pytest.mark.parametrize("path", named(SOURCES))
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    ours = [name.split(".") for name in imports_of(path) if name.startswith("znoded.")]
    known = {parts[1] for parts in ours if parts[1] != "__version__"}
    assert known <= MAY_IMPORT[room] | {room}


@pytest.mark.parametrize("path", named([path for path in SOURCES if room_of(path) in PURE_ROOMS]))
def test_a_pure_room_touches_nothing_outside_its_arguments(path: Path) -> None:
    assert not IMPURE_MODULES & {name.split(".")[0] for name in imports_of(path)}
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not IMPURE_BUILTINS & names


@pytest.mark.parametrize("path", named([*SOURCES, *OTHER_SOURCES]))
def test_a_source_file_says_what_it_is_and_stays_short(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "the file has no docstring"
    assert len(text.splitlines()) <= SOURCE_LINES_MOST


@pytest.mark.parametrize("path", named(SOURCES))
def test_no_regular_expression_has_a_possessive_group(path: Path) -> None:
    texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    patterns = [text.decode("latin-1") if isinstance(text, bytes) else text for text in texts]
    assert [text for text in patterns if isinstance(text, str) and POSSESSIVE_GROUP.search(text)] == []


@pytest.mark.parametrize("path", named(SOURCES))
def test_what_an_assignment_is_for_stands_in_front_of_it(path: Path) -> None:
    bodies = [getattr(node, "body", None) for node in ast.walk(ast.parse(path.read_text()))]
    behind = [
        f"line {statement.lineno}"
        for body in bodies
        if isinstance(body, list)
        for assignment, statement in pairwise(body)
        if isinstance(assignment, ast.Assign | ast.AnnAssign)
        and isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]
    assert not behind, "a comment `#:` in front is how it is done"


def test_no_file_holds_a_path_of_some_machine_or_unfinished_work() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert not found


def texts() -> Iterator[Path]:
    """Every text file that is part of the project."""
    yield from (path for path in ROOT.iterdir() if path.suffix in {".md", ".toml", ".cfg"} or path.name == "Makefile")
    for folder in KEPT_FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            made = {"__pycache__", "node_modules", "target"} & set(path.parts)
            if path.is_file() and path.suffix in TEXT_SUFFIXES and not made:
                yield path


@pytest.mark.parametrize("page", named([ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text())
    dead = [f"{target}#{anchor}" for target, anchor in links if not leads_somewhere(page, target, anchor)]
    assert not dead


def leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    """Whether a link's file is there, and has the heading that its anchor names."""
    file = page.parent / target if target else page
    if not file.exists():
        return False
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if anchor else []
    return not anchor or anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_package_is_installed() -> None:
    # An editable install, as the tests have, would not notice one that the list leaves out.
    listed = configparser.ConfigParser()
    listed.read(ROOT / "setup.cfg")
    packages = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in HOUSE.rglob("__init__.py")}
    assert set(listed["options"]["packages"].split()) == {*packages, "twisted.plugins"}
