"""The images that the specs and their pods ask for, by the same names, made without a registry. In them is what the specs use."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from tests.e2e.controlplane import binaries
from tests.e2e.dra import specs
from tests.e2e.node import images

HOSTPATHPLUGIN = "registry.k8s.io/sig-storage/hostpathplugin:v1.17.1"
"""The image of the pods through which the specs' driver reaches a node. Stands in for kubernetes-csi's: a proxy (go/hostpathplugin)."""
TEST_IMAGES = "registry.k8s.io/e2e-test-images"
BUSYBOX = ("test/utils/image/manifest.go", r'configs\[BusyBox\] = Config\{\S+, "(busybox)", "(\S+)"\}')
"""The image of the specs' pods. Stands in for the Docker library's, with Debian's busybox."""
DEVICE_PLUGIN = (
    "test/e2e/testing-manifests/sample-device-plugin/sample-device-plugin.yaml",
    rf"image: {TEST_IMAGES}/(sample-device-plugin):(\S+)",
)
"""Upstream's own. As the one before it, it has the tag that stands in this file of the specs' sources."""

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
    yield images.image(_wanted(*BUSYBOX), TOOLS, {})
    yield _with_program(HOSTPATHPLUGIN, specs.PROXY)
    yield _with_program(_wanted(*DEVICE_PLUGIN), specs.DEVICE_PLUGIN, "-alsologtostderr")


def _wanted(file: str, pattern: str) -> str:
    """The image that the specs of the chosen release ask for."""
    sources = binaries.source(specs.MODULE, "k8s.io/kubernetes")
    [(name, tag)] = re.findall(pattern, (sources / file).read_text())
    return f"{TEST_IMAGES}/{name}:{tag}"


def _with_program(name: str, program: str, *flags: str) -> pathlib.Path:
    # Upstream's call the programs what the images are called.
    called = name.rpartition("/")[2].partition(":")[0].replace("-", "")
    entry = ", ".join(f'"{word}"' for word in (f"/{called}", *flags))
    dockerfile = f"{TOOLS}COPY {called} /\nENTRYPOINT [{entry}]\n"
    return images.image(name, dockerfile, {called: binaries.binary(program, specs.MODULE).read_bytes()})
