"""What every interop test shares: the marker, and the one rule about parts that are not there."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRE_VARIABLE = "ZNODED_REQUIRE_INTEROP"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything below this folder `interop`; other folders' tests are left alone."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


def missing(reason: str) -> NoReturn:
    """Skip the test because a foreign part is absent; fail it where the parts must be there (CI sets the variable).

    `reason` says what is absent and how to get it.
    """
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{REQUIRE_VARIABLE}=1 and {reason}", pytrace=False)
    pytest.skip(reason)


class Parts:
    """Asks for the programs, files and modules a test needs; see `missing` for what happens when one is absent."""

    def program(self, name: str, package: str, also_in: Iterable[str] = ()) -> str:
        """Return the path of program `name`; `also_in` are folders outside PATH where Debian puts it."""
        search_path = os.pathsep.join([os.environ.get("PATH", os.defpath), *also_in])
        found = shutil.which(name, path=search_path)
        if found is None:
            missing(f"no program {name}: install {package}")
        return found

    def file(self, pattern: str, package: str) -> Path:
        """Return the last file, in name order, that matches the absolute glob `pattern`."""
        found = sorted(Path("/").glob(pattern.lstrip("/")))
        if not found:
            missing(f"no file {pattern}: install {package}")
        return found[-1]

    def module(self, name: str, package: str) -> None:
        """Check that the Python module `name` can be imported by the interpreter that runs the tests."""
        if importlib.util.find_spec(name) is None:
            missing(f"no Python module {name}: pip install {package}")

    def missing(self, reason: str) -> NoReturn:
        """For any other absent part: skip or fail with `reason`."""
        missing(reason)


@pytest.fixture(scope="session")
def parts() -> Parts:
    """The one way for an interop test to ask for what it does not bring along."""
    return Parts()
