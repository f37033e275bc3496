"""Informers of fabric8, the Java client, as a program for `client_go.Informers`.

`fabric8/Informers.java` is the program; Maven fetches the libraries that `fabric8/pom.xml` names."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

PROJECT = pathlib.Path(__file__).resolve().parent / "fabric8"
CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
RESOLVE_SECONDS = 300.0


class Missing(Exception):
    """Something that this machine lacks; its message is the reason of a skip."""


def program(folder: pathlib.Path) -> list[str]:
    """The command that starts it; `folder` is for what Maven writes. Raises Missing where there is no JDK, no Maven, or no way to the
    libraries."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise Missing(f"needs {tool} (Debian: openjdk-17-jdk-headless and maven)")
    found = folder / "classpath.txt"
    shutil.copy(PROJECT / "pom.xml", folder)
    maven = subprocess.run(
        ["mvn", "-q", "-B", CLASSPATH, f"-Dmdep.outputFile={found}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RESOLVE_SECONDS,
        check=False,
    )
    if maven.returncode:
        raise Missing(f"Maven cannot have the libraries of fabric8: {(maven.stdout + maven.stderr)[-2000:]}")
    options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
    return ["java", *options, "-cp", found.read_text().strip(), str(PROJECT / "Informers.java")]
