"""Check the conversion of a definition, and the webhook that it may name.

Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go` validateCustomResourceConversion,
kubernetes/apiserver `pkg/util/webhook/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from kubecel.libraries import urls
from kubetext import names

Object = Mapping[str, Any]

NONE, WEBHOOK = "None", "Webhook"
REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "; desired format: https://host[/path]"


def problems(conversion: Object, path: Path) -> Iterator[FieldError]:
    """Yield the errors of `spec.conversion`. Paths are those of the internal type."""
    strategy = conversion.get("strategy", "")
    webhook: Object = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or ()
    if not strategy:
        yield fieldpath.required(path.child("strategy"))
    elif strategy not in (NONE, WEBHOOK):
        yield fieldpath.not_supported(path.child("strategy"), strategy, (NONE, WEBHOOK))
    at = path.child("webhookClientConfig")
    if strategy != WEBHOOK:
        detail = "should not be set when strategy is not set to Webhook"
        if client is not None:
            yield fieldpath.forbidden(at, detail)
        if versions:
            yield fieldpath.forbidden(path.child("conversionReviewVersions"), detail)
        return
    if client is None:
        yield fieldpath.required(at, "required when strategy is set to Webhook")
    else:
        yield from _client(client, at)
    yield from _review_versions(versions, path.child("conversionReviewVersions"))


def _client(client: Object, path: Path) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield fieldpath.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(url, path.child("url"))
    elif service is not None:
        yield from _service(service, path.child("service"))


def _url(text: str, path: Path) -> Iterator[FieldError]:
    try:
        url = urls.reference(text)
    except ValueError as e:
        yield fieldpath.required(path, f"url must be a valid URL: {e}{_FORM}")
        return
    if url.scheme != "https":
        yield fieldpath.invalid(path, url.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not url.host:
        yield fieldpath.invalid(path, "", f"host must be specified{_FORM}")
    if url.user is not None:
        yield fieldpath.invalid(path, url.user, "user information is not permitted in the URL")
    if url.fragment:
        yield fieldpath.invalid(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        yield fieldpath.invalid(path, url.query, "query parameters are not permitted in the URL")


def _service(service: Object, path: Path) -> Iterator[FieldError]:
    # As upstream, which takes the one for the other.
    if not service.get("namespace"):
        yield fieldpath.required(path.child("name"))
    if not service.get("name"):
        yield fieldpath.required(path.child("namespace"))
    port = service.get("port", 0)
    if not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        yield fieldpath.invalid(path.child("port"), port, detail)
    where, at = service.get("path") or "", path.child("path")
    if where == "//":
        yield fieldpath.invalid(at, where, "segment[0] may not be empty")
        return
    if where in ("", "/"):
        return
    if not where.startswith("/"):
        yield fieldpath.invalid(at, where, "must start with a '/'")
    for i, step in enumerate(where[1:].removesuffix("/").split("/")):
        if not step:
            yield fieldpath.invalid(at, where, f"segment[{i}] may not be empty")
            continue
        for text in names.dns_subdomain(step):
            yield fieldpath.invalid(at, where, f"segment[{i}]: {text}")


def _review_versions(versions: Sequence[str], path: Path) -> Iterator[FieldError]:
    if not versions:
        yield fieldpath.required(path)
        return
    seen = set()
    for i, version in enumerate(versions):
        if version in seen:
            yield fieldpath.invalid(path.index(i), version, "duplicate version")
            continue
        seen.add(version)
        for text in names.old_dns_label(version):
            yield fieldpath.invalid(path.index(i), version, text)
    if not seen & {*REVIEW_VERSIONS}:
        yield fieldpath.invalid(path, list(versions), f"must include at least one of {', '.join(REVIEW_VERSIONS)}")
