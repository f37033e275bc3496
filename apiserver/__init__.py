"""Sluice: a Kubernetes aggregated API server that keeps its objects in a log on Redis Streams."""

import sys

__version__ = "0.1.0"

# In words that older Pythons understand: nothing else here can be imported by them.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("Sluice needs Python 3.11 or newer, and this is %s." % sys.version.split()[0])  # noqa: UP031
