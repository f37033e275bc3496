"""Sluice: a Kubernetes aggregated API server that keeps its objects in a log on Redis Streams."""

import sys

# Syntax that older Pythons understand: they can import nothing else here.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("Sluice needs Python 3.11 or newer, and this is %s." % sys.version.split()[0])  # noqa: UP031

from apiserver import buildinfo

__version__ = buildinfo.version()
