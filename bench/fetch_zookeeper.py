"""Finds the jars of ZooKeeper 3.9.5 and Curator 5.9.0, or fetches them from PyPI (about 450 MB, once).

    python -m bench.fetch_zookeeper        print the folder that holds the jars; fetch them first if there is none

PySpark ships both with everything they need, which makes the package index the one source that this needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "pyspark==4.3.0"
JARS_FOLDER = "/deps/jars/"
ZOOKEEPER_JAR = "zookeeper-3.9.5.jar"
ENVIRONMENT_VARIABLE = "ZOOKEEPER_JARS"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "zookeeper-jars"


def find_jars(given: Path | str | None = None) -> Path | None:
    """The folder of jars: the one given, else the one in ZOOKEEPER_JARS, else what was fetched before, else None."""
    for folder in (given, os.environ.get(ENVIRONMENT_VARIABLE), CACHE):
        if folder and (Path(folder) / ZOOKEEPER_JAR).is_file():
            return Path(folder)
    return None


def fetch(cache: Path = CACHE) -> Path:
    """Download the package with pip and put its jars into the cache folder. Returns the folder."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE],
            check=True,
        )
        (archive,) = Path(scratch).iterdir()
        jars = Path(scratch) / "jars"
        jars.mkdir()
        extract_jars(archive, jars)
        jars.rename(cache)
    return cache


def extract_jars(archive: Path, target: Path) -> None:
    """Copy the jars of a wheel or source archive, without its folders, into `target`."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(is_jar, wheel.namelist()):
                (target / Path(name).name).write_bytes(wheel.read(name))
    else:
        with tarfile.open(archive) as source:
            for member in source:
                content = source.extractfile(member) if is_jar(member.name) else None
                if content is not None:
                    (target / Path(member.name).name).write_bytes(content.read())


def is_jar(name: str) -> bool:
    return JARS_FOLDER in f"/{name}" and name.endswith(".jar")


if __name__ == "__main__":
    print(find_jars() or fetch())
