"""Check a CustomResourceDefinition as kube-apiserver does when one is created: every error at once.

Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`, `pkg/apihelpers/helpers.go`,
`pkg/registry/customresourcedefinition/strategy.go`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apiserver.apiextensions import conversion_checks, default_checks, facts, internal, structural_checks
from apiserver.apiextensions.internal import COLUMNS, SCHEMA, SELECTABLE, SUBRESOURCES, Internal
from apiserver.apiextensions.schema_checks import Check
from apiserver.apiextensions.sharing import Sharing
from apiserver.apiextensions.structural_checks import Schema
from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import ROOT, FieldError, FieldErrors, Path
from apiserver.apimachinery.releases import V1_37, Release
from apiserver.codecs.objects.conversion import copied
from apiserver.schema import structural
from apiserver.structural import rule_checks, rule_paths
from kubecel.libraries import urls
from kubetext import names

Object = Mapping[str, Any]

SCOPES = ("Cluster", "Namespaced")
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_RESET = ("namespace", "generation", "managedFields")
"""Members of metadata that the server sets or drops before it checks them."""
APPROVAL = "api-approved.kubernetes.io"
"""The annotation that says why a definition may be in a group of the Kubernetes project."""
DEPRECATION_BYTES = 256

_AT_ROOT = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems "
    "UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations"
)
"""Go's names of the members that a schema may have at its root if there is a status subresource, in upstream's order."""
_SPEC = ROOT.child("spec")


def problems(source: Object, release: Release, shared: Sharing | None = None) -> FieldErrors:
    """Return every error of a decoded definition with defaults, in upstream's order. Takes seconds for the largest schemas."""
    shared = shared or Sharing()
    shared.kept.append(source)
    found = _problems(source, release, shared)
    # Some errors depend on the place of a node, so the search for them begins again with a node for each place.
    return _problems(copied(source), release, Sharing()) if found else found


def _problems(source: Object, release: Release, shared: Sharing) -> FieldErrors:
    spec: Object = source.get("spec") or {}
    form = internal.of(spec, shared)
    metadata = {name: value for name, value in meta.metadata(source).items() if name not in _RESET}
    errors = meta.validate_object_meta(
        {"metadata": metadata}, release, namespaced=False, name_check=_name_check(spec), qualified_finalizers=False
    )
    errors.extend(_spec(form, release, shared))
    errors.extend(_stored_versions(form))
    errors.extend(_approval(source))
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        errors.append(fieldpath.invalid(_SPEC.child("preserveUnknownFields"), True, detail))  # noqa: FBT003
    return errors


def warnings(source: Object, release: Release, shared: Sharing | None = None) -> list[str]:
    """Return the warnings of a decoded definition, each once."""
    shared = shared or Sharing()
    shared.kept.append(source)
    schemas = [
        schema for version in source["spec"].get("versions") or () if (schema := _schema_of(version)) is not None
    ]
    about = [facts.of(schema, shared.facts) for schema in schemas]
    found = [f'unrecognized format "{text}"' for each in about for text in each.formats]
    if release >= V1_37:
        unsupported = "is not supported by server-side apply or CEL validation rules"
        types = sorted({text for each in about for text in each.sets})
        found += [f'x-kubernetes-list-type: set for items of type "{text}" {unsupported}' for text in types]
    return list(dict.fromkeys(found))


def _name_check(spec: Object) -> meta.NameCheck:
    required = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"

    def check(name: str, prefix: bool) -> list[str]:  # noqa: FBT001 - the signature of a kind's name rule
        found = names.subdomain_name(name, prefix)
        return found if name == required else [*found, 'must be spec.names.plural+"."+spec.group']

    return check


# ---------------------------------------------------------------------------------------------------------------- the spec


def _spec(form: Internal, release: Release, shared: Sharing) -> Iterator[FieldError]:
    spec = form.spec
    yield from _group(spec.get("group", ""))
    if not (scope := spec.get("scope", "")):
        yield fieldpath.required(_SPEC.child("scope"))
    elif scope not in SCOPES:
        yield fieldpath.not_supported(_SPEC.child("scope"), scope, SCOPES)
    schemas = [schema for version in spec.get("versions") or () if (schema := _schema_of(version)) is not None]
    if _schema_of(form.top) is None:
        for i, version in enumerate(form.versions):
            if _schema_of(version) is None:
                yield fieldpath.required(_SPEC.child("versions").index(i).child("schema").child("openAPIV3Schema"))
    if spec.get("preserveUnknownFields") and any(facts.of(schema, shared.facts).defaults for schema in schemas):
        detail = "must be false in order to use defaults in the schema"
        yield fieldpath.invalid(_SPEC.child("preserveUnknownFields"), True, detail)  # noqa: FBT003
    yield from _versions(form, release, shared)
    yield from _names(spec.get("names") or {}, _SPEC.child("names"))
    if SCHEMA in form.top:
        with_status = any(_has_status(version) for version in (form.top, *form.versions))
        at = _SPEC.child("validation")
        yield from _validation(form.top[SCHEMA], at, with_status=with_status, release=release, shared=shared)
    yield from _subresources(form.top.get(SUBRESOURCES), _SPEC.child("subresources"))
    for i, column in enumerate(form.top.get(COLUMNS) or ()):
        yield from _column(column, _SPEC.child("additionalPrinterColumns").index(i))
    if form.top.get(SELECTABLE):
        at = _SPEC.child("selectableFields")
        if SCHEMA not in form.top:
            yield fieldpath.invalid(at, "", "may only be set when validations.schema is included")
        else:
            # Upstream panics without a schema.
            yield from _selectable(form.top[SELECTABLE], _schema_of(form.top) or {}, _SPEC)
    if (conversion := spec.get("conversion")) is not None:
        if conversion.get("strategy", "") != conversion_checks.NONE and spec.get("preserveUnknownFields"):
            strategy = fieldpath.Typed(conversion.get("strategy", ""))
            at = _SPEC.child("conversion").child("strategy")
            yield fieldpath.invalid(at, strategy, "must be None if spec.preserveUnknownFields is true")
        yield from conversion_checks.problems(conversion, _SPEC.child("conversion"))


def _group(group: str) -> Iterator[FieldError]:
    at = _SPEC.child("group")
    if not group:
        yield fieldpath.required(at)
    elif texts := names.dns_subdomain(group):
        yield fieldpath.invalid(at, group, ",".join(texts))
    elif "." not in group:
        yield fieldpath.invalid(at, group, "should be a domain with at least one dot")


def _versions(form: Internal, release: Release, shared: Sharing) -> Iterator[FieldError]:
    at, seen = _SPEC.child("versions"), set()
    for i, version in enumerate(form.versions):
        name = version.get("name", "")
        seen.add(name)
        if texts := names.old_dns_label(name):
            yield fieldpath.invalid(at.index(i).child("name"), name, ",".join(texts))
        with_status = _has_status(version) or _has_status(form.top)
        yield from _version(version, at.index(i), with_status=with_status, release=release, shared=shared)
    repeated = len(seen) < len(form.versions)
    several = sum(bool(version.get("storage")) for version in form.versions) != 1
    if repeated or several:
        shown = fieldpath.Shown(fieldpath.show(internal.shown_versions(form)))
        if repeated:
            yield fieldpath.invalid(at, shown, "must contain unique version names")
        if several:
            yield fieldpath.invalid(at, shown, "must have exactly one version marked as storage version")
    # The internal type repeats the name of the first version.
    first = form.versions[0].get("name", "") if form.versions else ""
    if first and (texts := names.old_dns_label(first)):
        yield fieldpath.invalid(_SPEC.child("version"), first, ",".join(texts))


def _version(
    version: Object, path: Path, *, with_status: bool, release: Release, shared: Sharing
) -> Iterator[FieldError]:
    yield from _deprecation(version, path.child("deprecationWarning"))
    if SCHEMA in version:
        at = path.child("schema")
        yield from _validation(version[SCHEMA], at, with_status=with_status, release=release, shared=shared)
    yield from _subresources(version.get(SUBRESOURCES), path.child("subresources"))
    for i, column in enumerate(version.get(COLUMNS) or ()):
        yield from _column(column, path.child("additionalPrinterColumns").index(i))
    if version.get(SELECTABLE):
        schema = _schema_of(version)
        if schema is None:
            detail = "may only be set when `version.schema.openAPIV3Schema` is not included"
            yield fieldpath.invalid(path.child("selectableFields"), "", detail)
        else:
            yield from _selectable(version[SELECTABLE], schema, path)


def _deprecation(version: Object, path: Path) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    # It is a pointer in Go, which errors show as JSON.
    shown = fieldpath.Typed(text)
    if not version.get("deprecated"):
        yield fieldpath.invalid(path, shown, "can only be set for deprecated versions")
        return
    if names.byte_length(text) > DEPRECATION_BYTES:
        yield fieldpath.invalid(path, shown, f"must be <= {DEPRECATION_BYTES} characters long")
    if not text:
        yield fieldpath.invalid(path, shown, "must not be an empty string")
    for i, character in enumerate(text):
        if character != " " and unicodedata.category(character)[0] not in "LMNPS":
            at = names.byte_length(text[:i])
            detail = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
            yield fieldpath.invalid(path, shown, detail)
            break


def _names(found: Object, path: Path) -> Iterator[FieldError]:
    for name in ("plural", "singular", "kind", "listKind"):
        if not found.get(name):
            yield fieldpath.required(path.child(name))
    for name in ("plural", "singular"):
        if (text := found.get(name, "")) and (texts := names.old_dns_label(text)):
            yield fieldpath.invalid(path.child(name), text, ",".join(texts))
    for name in ("kind", "listKind"):
        if (text := found.get(name, "")) and (texts := names.old_dns_label(names.lower(text))):
            detail = f"may have mixed case, but should otherwise match: {','.join(texts)}"
            yield fieldpath.invalid(path.child(name), text, detail)
    yield from _labels(found.get("shortNames") or (), path.child("shortNames"))
    if (kind := found.get("kind", "")) and kind == found.get("listKind"):
        yield fieldpath.invalid(path.child("listKind"), kind, "kind and listKind may not be the same")
    yield from _labels(found.get("categories") or (), path.child("categories"))


def _labels(found: Iterable[str], path: Path) -> Iterator[FieldError]:
    for i, text in enumerate(found):
        if texts := names.old_dns_label(text):
            yield fieldpath.invalid(path.index(i), text, ",".join(texts))


def _stored_versions(form: Internal) -> Iterator[FieldError]:
    """Yield errors of `status.storedVersions`, which begins as the first storage version."""
    at = ROOT.child("status").child("storedVersions")
    stored = [version.get("name", "") for version in form.versions if version.get("storage")]
    if not stored:
        yield fieldpath.invalid(at, None, "must have at least one stored version")
        return
    for name in stored[1:]:
        yield fieldpath.invalid(at, stored[:1], f"must have the storage version {name}")


def _approval(source: Object) -> Iterator[FieldError]:
    """Yield an error for a group of the Kubernetes project without an approval."""
    group = (source.get("spec") or {}).get("group", "")
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return
    said = (meta.metadata(source).get("annotations") or {}).get(APPROVAL, "")
    at = ROOT.child("metadata").child("annotations").key(APPROVAL)
    see, needed = (
        "see https://github.com/kubernetes/enhancements/pull/1111",
        "protected groups must have approval annotation",
    )
    if not said:
        yield fieldpath.required(at, f'{needed} "{APPROVAL}", {see}')
    elif not said.startswith("unapproved") and not _is_absolute(said):
        detail = f'{needed} "{APPROVAL}" with either a URL or a reason starting with "unapproved", {see}'
        yield fieldpath.invalid(at, said, detail)


def _is_absolute(text: str) -> bool:
    """Return whether a text is a URL with scheme and host."""
    if urls.request_uri(text) is not None:
        return False
    # A `#` begins no fragment here.
    url = urls.reference(text.replace("#", "%23"))
    return bool(url.scheme and url.host)


# ---------------------------------------------------------------------------------------------------------------- parts of a version


def _schema_of(version: Object) -> Schema | None:
    schema: Schema | None = (version.get(SCHEMA) or {}).get("openAPIV3Schema")
    return schema


def _has_status(version: Object) -> bool:
    return (version.get(SUBRESOURCES) or {}).get("status") is not None


def _validation(
    validation: Object, path: Path, *, with_status: bool, release: Release, shared: Sharing
) -> Iterator[FieldError]:
    schema: Schema | None = validation.get("openAPIV3Schema")
    if schema is None:
        return
    at = path.child("openAPIV3Schema")
    found, unsupported = False, structural_checks.unsupported(schema, shared.convertible)
    structured = not unsupported
    for error in _schema(schema, at, with_status=with_status, structured=structured, release=release, shared=shared):
        found = True
        yield error
    if not found and unsupported:
        yield fieldpath.invalid(at, "", unsupported)


def _schema(
    schema: Schema, path: Path, *, with_status: bool, structured: bool, release: Release, shared: Sharing
) -> Iterator[FieldError]:
    if with_status:
        yield from _root(schema, path)
    if schema.get("nullable"):
        yield fieldpath.forbidden(path.child("nullable"), "nullable cannot be true at the root")
    node = None
    if structured:
        errors = structural_checks.problems(schema, path, shared)
        if not errors:
            node = structural.of(schema, shared.nodes)
            if facts.of(schema, shared.facts).defaults:
                errors = list(default_checks.problems(node, path, release))
        if errors:
            node = None
            yield from errors
    check = Check(shared)
    check.run(schema, path)
    yield from check.errors
    if node is not None and any(below.rules for below in structural.below(node)):
        yield from rule_checks.problems(node, path, release=release, flawed=check.flawed)


def _root(schema: Schema, path: Path) -> Iterator[FieldError]:
    """Yield an error for a root that says what the schema of status alone would not say."""
    allowed = _AT_ROOT.split()
    for go, name, *_ in internal.SCHEMA_FIELDS:
        if name not in schema:
            continue
        if go == "Type" and schema["type"] != "object":
            detail = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            yield fieldpath.invalid(path.child("type"), schema["type"], detail)
            return
        if go not in allowed:
            detail = (
                f"only [{_AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled"
            )
            yield fieldpath.invalid(path, internal.shown_schema(schema), detail)
            return


def _subresources(found: Object | None, path: Path) -> Iterator[FieldError]:
    scale: Object | None = (found or {}).get("scale")
    if scale is None:
        return
    path = path.child("scale")
    for name, parent in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        text, at = scale.get(name, ""), path.child(name)
        if not text:
            yield fieldpath.required(at)
        elif not text.startswith("."):
            yield fieldpath.invalid(at, text, _NO_PATH)
        elif not text.startswith(parent):
            yield fieldpath.invalid(at, text, f"should be a json path under {parent.removesuffix('.')}")
    if selector := scale.get("labelSelectorPath") or "":
        at = path.child("labelSelectorPath")
        if not selector.startswith("."):
            yield fieldpath.invalid(at, selector, _NO_PATH)
        elif not selector.startswith((".spec.", ".status.")):
            yield fieldpath.invalid(
                at, fieldpath.Typed(selector), "should be a json path under either .spec or .status"
            )


_NO_PATH = "must be a simple json path starting with ."


def _column(column: Object, path: Path) -> Iterator[FieldError]:
    if not column.get("name"):
        yield fieldpath.required(path.child("name"))
    type_, format_, text = column.get("type", ""), column.get("format", ""), column.get("jsonPath", "")
    detail = f"must be one of {','.join(COLUMN_TYPES)}"
    if not type_:
        yield fieldpath.required(path.child("type"), detail)
    elif type_ not in COLUMN_TYPES:
        yield fieldpath.invalid(path.child("type"), type_, detail)
    if format_ and format_ not in COLUMN_FORMATS:
        yield fieldpath.invalid(path.child("format"), format_, f"must be one of {','.join(COLUMN_FORMATS)}")
    if not text:
        yield fieldpath.required(path.child("JSONPath"))
    elif not text.startswith("."):
        yield fieldpath.invalid(path.child("JSONPath"), text, _NO_PATH)


def _selectable(fields: Sequence[Object], schema: Schema, path: Path) -> Iterator[FieldError]:
    if text := structural_checks.unsupported(schema):
        # Upstream panics at a path that is well formed.
        yield fieldpath.invalid(path.child("schema").child("openAPIV3Schema"), "", text)
        schema = {}
    node, seen, path = structural.of(schema), set(), path.child("selectableFields")
    for i, field in enumerate(fields):
        at, text = path.index(i).child("jsonPath"), field.get("jsonPath", "")
        if not text:
            yield fieldpath.required(at)
            continue
        try:
            found, selected = rule_paths.resolve(text, node, brackets=False)
        except rule_paths.PathError as e:
            yield fieldpath.invalid(at, text, f"is an invalid path: {e}")
            continue
        if found.segments()[0] == "metadata":
            yield fieldpath.invalid(at, text, "must not point to fields in metadata")
        if selected is None or selected.type not in _SELECTABLE_TYPES:
            detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            yield fieldpath.invalid(at, text, detail)
        if str(found) in seen:
            yield fieldpath.duplicate(at, text)
        seen.add(str(found))
    if len(seen) > MOST_SELECTABLE:
        yield fieldpath.too_many(path, len(seen), MOST_SELECTABLE)


MOST_SELECTABLE = 8
_SELECTABLE_TYPES = ("string", "boolean", "integer")
