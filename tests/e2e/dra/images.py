"""The images that the specs and their pods ask for, by the same names, made without a registry. In them is what the specs use."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from tests.e2e.controlplane import binaries
from tests.e2e.dra import specs
from tests.e2e.node import images

BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
"""The image of the specs' pods. Stands in for the Docker library's, with Debian's busybox."""
HOSTPATHPLUGIN = "registry.k8s.io/sig-storage/hostpathplugin:v1.17.1"
"""The image of the pods through which the specs' driver reaches a node. Stands in for kubernetes-csi's: a proxy (go/hostpathplugin)."""
DEVICE_PLUGIN = "registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"
"""Upstream's own, of the version that the specs have."""

# The base of all three has what upstream's have: a shell and the usual commands.
TOOLS = """\
FROM debian:trixie-slim AS debian
RUN apt-get update && apt-get install --yes --no-install-recommends busybox-static \\
 && mkdir -p /tools/bin && mkdir -m 1777 /tools/tmp \\
 && for name in $(busybox --list); do ln -s busybox /tools/bin/$name; done \\
 && cp --remove-destination "$(command -v busybox)" /tools/bin/busybox
FROM scratch
COPY --from=debian /tools /
CMD ["sh"]
"""


def archives() -> Iterator[pathlib.Path]:
    yield images.image(BUSYBOX, TOOLS, {})
    yield _with_program(HOSTPATHPLUGIN, specs.PROXY)
    yield _with_program(DEVICE_PLUGIN, specs.DEVICE_PLUGIN, "-alsologtostderr")


def _with_program(name: str, program: str, *flags: str) -> pathlib.Path:
    # Upstream's call the programs what the images are called.
    called = name.rpartition("/")[2].partition(":")[0].replace("-", "")
    entry = ", ".join(f'"{word}"' for word in (f"/{called}", *flags))
    dockerfile = f"{TOOLS}COPY {called} /\nENTRYPOINT [{entry}]\n"
    return images.image(name, dockerfile, {called: binaries.binary(program, specs.MODULE).read_bytes()})
