"""Compiling and running the Java programs, with Debian's libraries or with newer jars."""

from __future__ import annotations

import os
from pathlib import Path

from tests.interop.conftest import Parts
from tests.interop.programs import build

JARS_VARIABLE = "ZNODED_ZOOKEEPER_JARS"
DEBIAN_JARS = Path("/usr/share/java")
SHARED_SOURCES = Path(__file__).parent / "java"

# Debian's ZooKeeper 3.8 and Curator 5.4, and what they need that zookeeper.jar's manifest does not name.
DEBIAN_PARTS = (
    ("zookeeper.jar", "libzookeeper-java"),
    ("zookeeper-jute.jar", "libzookeeper-java"),
    ("slf4j-api.jar", "libslf4j-java"),
    ("slf4j-nop.jar", "libslf4j-java"),
    ("netty-resolver.jar", "libnetty-java"),
    ("netty-codec.jar", "libnetty-java"),
)
DEBIAN_CURATOR_PARTS = (
    ("curator-recipes.jar", "libcurator-recipes-java"),
    ("curator-framework.jar", "libcurator-framework-java"),
    ("curator-client.jar", "libcurator-client-java"),
    ("guava.jar", "libguava-java"),
)

# Each variant of the libraries is a test of its own; the newer jars take part where the variable says where they are.
VARIANTS = ["debian", "jars"] if os.environ.get(JARS_VARIABLE) else ["debian"]


def class_path(parts: Parts, variant: str, *, curator: bool = False) -> str:
    """The class path of a variant of the libraries. A missing part is told to `parts`."""
    if variant == "jars":
        folder = Path(os.environ[JARS_VARIABLE])
        for wanted in ("zookeeper-*.jar", "curator-recipes-*.jar") if curator else ("zookeeper-*.jar",):
            parts.file(f"{folder}/{wanted}", f"the jars of ZooKeeper and Curator into {JARS_VARIABLE}={folder}")
        return f"{folder}/*"
    wanted_parts = DEBIAN_PARTS + (DEBIAN_CURATOR_PARTS if curator else ())
    return ":".join(str(parts.file(f"{DEBIAN_JARS}/{jar}", package)) for jar, package in wanted_parts)


def compile_java(parts: Parts, libraries: str, sources: Path, directory: Path) -> list[str]:
    """Compile a folder of sources and the shared ones into `directory`; return the command that runs a class of it."""
    compiler = parts.program("javac", "default-jdk-headless")
    files = [str(file) for folder in (SHARED_SOURCES, sources) for file in sorted(folder.glob("*.java"))]
    build([compiler, "-nowarn", "-d", str(directory), "-cp", libraries, *files], directory)
    return [parts.program("java", "default-jre-headless"), "-Xmx256m", "-cp", f"{directory}:{libraries}"]
