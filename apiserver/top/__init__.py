"""`sluice top`: a page about a running server, drawn again and again from two readings of its metrics.

`reading` parses /metrics, `summary` makes a page's figures of two readings, `page` draws them with rich, which is an optional library.
"""
