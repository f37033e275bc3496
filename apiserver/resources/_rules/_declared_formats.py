"""Formats of upstream's declarative validation, for members that have no other rules: its texts differ from those of handwritten rules.

Upstream: kubernetes/apimachinery `pkg/api/validate/{strfmt,limits}.go`, `pkg/api/validate/content/dns.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.resources._rules import _formats
from apiserver.schema.types import Check
from kubetext import names


def long_name(value: str, path: Path) -> Iterator[FieldError]:
    """Check a DNS subdomain."""
    for text in names.dns_subdomain(value, unit="bytes"):
        yield fieldpath.invalid(path, value, text)


def short_name(value: str, path: Path) -> Iterator[FieldError]:
    """Check a DNS label."""
    for text in names.dns_label(value, unit="bytes"):
        yield fieldpath.invalid(path, value, text)


def long_name_caseless(value: str, path: Path) -> Iterator[FieldError]:
    """Check a DNS subdomain that may have upper case letters."""
    for text in names.caseless_dns_subdomain(value):
        yield fieldpath.invalid(path, value, text)


def pool_name(value: str, path: Path) -> Iterator[FieldError]:
    """Check DNS subdomains that are joined by slashes."""
    if names.byte_length(value) > _formats.POOL_BYTES:
        yield fieldpath.too_long(path, _formats.POOL_BYTES)
    for i, part in enumerate(value.split("/")):
        if not part:
            yield fieldpath.invalid(path, value, f"segment {i}: must not be empty")
            continue
        for text in names.dns_subdomain(part, unit="bytes"):
            yield fieldpath.invalid(path, part, f"segment {i}: {text}")


def fully_qualified_name(value: str, path: Path) -> Iterator[FieldError]:
    """Check `domain/identifier`. The parts of names with two slashes or more are not checked, as upstream."""
    match value.split("/"):
        case [name]:
            yield from _identifier(name, path)
            text = "a fully qualified name must be a domain and a name separated by a slash"
            yield fieldpath.invalid(path, value, text)
        case [domain, name]:
            yield from _domain(domain, path)
            if name:
                yield from _identifier(name, path)
            else:
                yield fieldpath.invalid(path, "", "name must not be empty")


def _domain(value: str, path: Path) -> Iterator[FieldError]:
    if not value:
        yield fieldpath.invalid(path, "", "prefix must not be empty")
        return
    if names.byte_length(value) > _formats.DRIVER_BYTES:
        yield fieldpath.too_long(path, _formats.DRIVER_BYTES)
    for text in names.dns_subdomain(value, unit="bytes"):
        yield fieldpath.invalid(path, value, f"prefix: {text}")


def _identifier(value: str, path: Path) -> Iterator[FieldError]:
    if names.byte_length(value) > _formats.IDENTIFIER_BYTES:
        yield fieldpath.too_long(path, _formats.IDENTIFIER_BYTES)
    for text in names.c_identifier(value):
        yield fieldpath.invalid(path, value, text)


def between(least: int, greatest: int | None = None) -> Check:
    """Make a check of a number's bounds."""

    def check(value: int, path: Path) -> Iterator[FieldError]:
        if greatest is not None and value > greatest:
            yield fieldpath.invalid(path, value, f"must be less than or equal to {greatest}")
        if value < least:
            yield fieldpath.invalid(path, value, f"must be greater than or equal to {least}")

    return check
