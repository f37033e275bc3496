"""Store keys, bytes and revisions on one Redis stream per resource. This package knows neither kinds nor HTTP."""
