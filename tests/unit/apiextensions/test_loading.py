"""Definitions in files and folders."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import pytest
import yaml

from apiserver.apiextensions import documents, loading
from apiserver.codecs.yaml import as_yaml
from tests.unit.apiextensions.definitions import definition

AT = "spec.validation.openAPIV3Schema"


def write(path: pathlib.Path, *values: Any) -> pathlib.Path:
    path.write_text("---\n".join(as_yaml.dumps(value).decode() for value in values))
    return path


def named(plural: str) -> dict[str, Any]:
    found = definition(metadata={"name": f"{plural}.definitions.test"})
    found["spec"]["names"] = {"plural": plural, "kind": plural.title()}
    return found


def test_file_with_several_documents_has_several_definitions(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "a.yaml", named("as"), {"kind": "Deployment", "apiVersion": "apps/v1"}, named("bs"))
    found, errors = loading.read([file])
    assert [each.name for each in found] == ["as.definitions.test", "bs.definitions.test"]
    assert errors == []
    ignored = [each.warnings for each in loading.inspect([file]) if not each.definition]
    assert ignored == [["apps/v1 Deployment is ignored"]]


@pytest.mark.parametrize("kind", ["List", "CustomResourceDefinitionList"])
def test_list_counts_as_its_items(tmp_path: pathlib.Path, kind: str) -> None:
    value = {"apiVersion": "v1", "kind": kind, "items": [named("as"), named("bs")]}
    (tmp_path / "a.json").write_text(json.dumps(value))
    found, errors = loading.read([tmp_path / "a.json"])
    assert [each.plural for each in found] == ["as", "bs"]
    assert errors == []


def test_json_values_may_follow_each_other(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(named("as"), indent=1) + json.dumps(named("bs")))
    assert [each.plural for each in loading.read([tmp_path / "a.json"])[0]] == ["as", "bs"]


def test_folder_counts_with_its_yaml_and_json_files(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "b.yml", named("bs"))
    write(tmp_path / "a.yaml", named("as"))
    write(tmp_path / "c.txt", named("cs"))
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner" / "d.yaml", named("ds"))
    assert [each.plural for each in loading.read([tmp_path])[0]] == ["as", "bs"]


def test_yaml_is_read_as_go_reads_it(tmp_path: pathlib.Path) -> None:
    text = yaml.safe_dump(definition({"X": {"type": "string"}})).replace("X:", "n:")
    (tmp_path / "a.yaml").write_text(text)
    (found,), _ = loading.read([tmp_path / "a.yaml"])
    assert list(found.storage.schema.properties) == ["false"]


def test_errors_name_file_and_document(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        f"# only a comment\n---\n{yaml.safe_dump(named('as'))}---\na: [\n---\n[]\n---\n{json.dumps(definition({'a': {}}))}\n"
    )
    found, errors = loading.read([file, tmp_path / "b.yaml"])
    assert [each.plural for each in found] == ["as"]
    assert errors == [
        f"{file}, document 2: yaml: line 1: did not find expected node content",
        f"{file}, document 3: the document is no object",
        f"{file}, document 4: as.definitions.test: {AT}.properties[a].type: Required value: must not be empty for specified object fields",
        f"{tmp_path / 'b.yaml'}: No such file or directory",
    ]


def test_text_behind_a_separator_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(named("as")) + "--- x\n" + yaml.safe_dump(named("bs")))
    assert loading.read([tmp_path / "a.yaml"]) == ([], [f"{tmp_path / 'a.yaml'}: invalid Yaml document separator: x"])


def test_v1beta1_is_refused_as_an_unknown_kind(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "a.yaml", {**named("as"), "apiVersion": "apiextensions.k8s.io/v1beta1"})
    assert loading.read([file]) == (
        [],
        [
            f'{file}: as.definitions.test: no matches for kind "CustomResourceDefinition" in version "apiextensions.k8s.io/v1beta1"'
        ],
    )


def test_wrong_type_is_an_error_with_the_text_of_kube_apiserver(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "a.yaml", definition(spec={"versions": {}}))
    text = (
        'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: json: cannot unmarshal object into '
        "Go struct field CustomResourceDefinitionSpec.spec.versions of type []v1.CustomResourceDefinitionVersion"
    )
    assert loading.read([file]) == ([], [f"{file}: as.definitions.test: {text}"])


@pytest.mark.parametrize("member", ["apiVersion", "kind"])
@pytest.mark.parametrize(
    "value", ["5", "[]", '{"a":' * 3000 + "1" + "}" * 3000], ids=["number", "list", "3,000 levels"]
)
def test_document_needs_texts_that_say_what_it_is(tmp_path: pathlib.Path, member: str, value: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(definition() | {member: "@"}).replace('"@"', value))
    assert loading.read([file]) == ([], [f"{file}: {member} must be a string"])


def test_file_above_the_limit_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.yaml"
    with file.open("wb") as stream:
        stream.truncate(documents.MOST_FILE_BYTES + 1)
    assert loading.read([file]) == ([], [f"{file}: the file is larger than {documents.MOST_FILE_BYTES} bytes"])


def test_compressed_files_are_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml.gz").write_bytes(gzip.compress(as_yaml.dumps(named("as"))))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(named("bs")).encode()))
    (tmp_path / "c.tar.gz").write_bytes(gzip.compress(b"nothing"))
    for paths in ([tmp_path], [tmp_path / "a.yaml.gz", tmp_path / "b.json.gz"]):
        found, errors = loading.read(paths)
        assert ([each.plural for each in found], errors) == (["as", "bs"], [])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"kind: No", "Not a gzipped file (b'ki')"),
        (gzip.compress(b"x" * 100)[:-12], "Compressed file ended before the end-of-stream marker was reached"),
        (gzip.compress(b"")[:10] + b"\xff" * 9, "Error -3 while decompressing data: invalid block type"),
    ],
    ids=["no gzip", "cut off", "broken"],
)
def test_compressed_file_that_cannot_be_read_is_an_error(tmp_path: pathlib.Path, content: bytes, why: str) -> None:
    file = tmp_path / "a.yaml.gz"
    file.write_bytes(content)
    assert loading.read([file]) == ([], [f"{file}: {why}"])


def test_compressed_file_that_is_too_large_is_an_error(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.yaml.gz"
    file.write_bytes(gzip.compress(bytes(documents.MOST_FILE_BYTES + 1), 1))
    assert loading.read([file]) == ([], [f"{file}: the file is larger than 67108864 bytes"])


def test_unknown_members_are_warnings(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "a.yaml", definition(spec={"zz": 1}))
    (found,) = loading.inspect([file])
    assert found.definition is not None
    assert found.warnings == ['unknown field "spec.zz"']


def test_repeated_keys_are_warnings_and_the_last_counts(tmp_path: pathlib.Path) -> None:
    text = as_yaml.dumps(definition()).decode()
    (tmp_path / "a.yaml").write_text(text.replace("  scope: Namespaced\n", "  scope: Cluster\n  scope: Namespaced\n"))
    (found,) = loading.inspect([tmp_path / "a.yaml"])
    assert found.definition is not None
    assert found.definition.namespaced
    (warning,) = found.warnings
    assert warning.startswith("yaml: unmarshal errors: line ")
    assert warning.endswith('key "scope" already set in map')


def test_definition_says_what_its_file_says(tmp_path: pathlib.Path) -> None:
    version = {
        "deprecated": True,
        "deprecationWarning": "old",
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.n",
                "statusReplicasPath": ".status.n",
                "labelSelectorPath": ".status.s",
            },
        },
        "additionalPrinterColumns": [{"name": "Count", "type": "integer", "jsonPath": ".spec.n", "priority": 1}],
        "selectableFields": [{"jsonPath": ".spec.n"}],
    }
    properties = {"spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}}
    names = {"plural": "as", "kind": "A", "shortNames": ["x"], "categories": ["all"]}
    source = definition(properties, version=version, spec={"names": names, "scope": "Cluster"})
    (found,), _ = loading.read([write(tmp_path / "a.yaml", {**source, "status": {"storedVersions": ["v0", "v1"]}})])
    assert (found.name, found.group, found.kind, found.list_kind) == (
        "as.definitions.test",
        "definitions.test",
        "A",
        "AList",
    )
    assert (found.plural, found.singular, found.short_names, found.categories) == ("as", "a", ("x",), ("all",))
    assert not found.namespaced
    assert found.webhook is None
    assert found.stored_versions == ("v0", "v1")
    storage = found.storage
    assert (storage.name, storage.served, storage.deprecated, storage.deprecation) == ("v1", True, True, "old")
    assert storage.status
    assert storage.scale is not None
    assert (storage.scale.spec_replicas, storage.scale.selector) == (".spec.n", ".status.s")
    assert [(column.name, column.json_path, column.priority) for column in storage.columns] == [("Count", ".spec.n", 1)]
    assert storage.selectable == (".spec.n",)
    assert storage.schema.properties["spec"].properties["n"].default == 1


def with_parts(plural: str, **parts: Any) -> dict[str, Any]:
    found = named(plural)
    found["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": parts}}
    return found


PART: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "default": "x"}, "l": {"type": "array", "items": {"type": "string"}}},
}


def test_equal_parts_of_definitions_become_one_node(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a.yaml", with_parts("as", x=PART, y={"type": "object", "properties": {"z": PART}}))
    write(tmp_path / "b.yaml", with_parts("bs", x=PART))
    (a, b), errors = loading.read([tmp_path])
    assert errors == []
    one, other = (each.storage.schema.properties for each in (a, b))
    assert one["x"] is one["y"].properties["z"] is other["x"]
    assert {name: node.type for name, node in one["x"].properties.items()} == {"a": "string", "l": "array"}


def test_equal_parts_have_the_errors_of_their_places(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a.yaml", with_parts("as", x={"type": "array"}, y={"type": "array"}, z=PART))
    # A default is allowed anywhere but in the metadata.
    write(tmp_path / "b.yaml", with_parts("bs", x=PART, metadata={"type": "object", "properties": {"name": PART}}))
    _, errors = loading.read([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    alone = [error for name in ("a", "b") for error in loading.read([tmp_path / f"{name}.yaml"])[1]]
    assert errors == alone
    assert [error.count("properties[") for error in errors[:2]] == [1, 1]
    assert f"{AT}.properties[x].items: Required value: must be specified" in errors[0]
    assert f"{AT}.properties[y].items: Required value: must be specified" in errors[1]
    assert f"{AT}.properties[metadata].properties[name].properties[a].default: Forbidden" in "\n".join(errors[2:])


def test_equal_parts_have_the_warnings_of_each_definition(tmp_path: pathlib.Path) -> None:
    part = {"type": "object", "properties": {"t": {"type": "string", "format": "odd", "strange": 1}}}
    write(tmp_path / "a.yaml", with_parts("as", x=part, y=part))
    write(tmp_path / "b.yaml", with_parts("bs", x=part))
    at = "spec.versions[0].schema.openAPIV3Schema.properties"
    unknown = 'unknown field "{}.properties.t.strange"'
    assert [list(each.warnings) for each in loading.inspect([tmp_path])] == [
        [unknown.format(f"{at}.x"), unknown.format(f"{at}.y"), 'unrecognized format "odd"'],
        [unknown.format(f"{at}.x"), 'unrecognized format "odd"'],
    ]
