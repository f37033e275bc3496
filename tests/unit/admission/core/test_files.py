"""Admission that files configure: permitted contents, messages about errors, and the effect on a change."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.admission.core import files
from apiserver.admission.core.files import Files
from apiserver.admission.core.sources import NoSuchKind
from tests.unit.cluster.plane import until

NOW = "2026-01-02T03:04:05Z"
RULE = {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
SELECTORS: dict[str, Any] = {"namespaceSelector": {}, "objectSelector": {}}


def registered(kind: str, name: str = "a", **members: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, **members}


def webhooks(kind: str, **members: Any) -> dict[str, Any]:
    return registered(f"{kind}WebhookConfiguration", webhooks=[{**WEBHOOK, **members}])


def policy(**members: Any) -> dict[str, Any]:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
    return registered("ValidatingAdmissionPolicy", spec={**spec, **members})


def write(file: Path, *documents: object) -> Path:
    file.write_text(yaml.safe_dump_all(documents))
    return file


def loaded(*paths: Path) -> Files:
    made = Files(paths, now=lambda: NOW)
    assert made.load() == []
    return made


def mistakes(*paths: Path) -> list[str]:
    return Files(paths, now=lambda: NOW).load()


def test_members_missing_in_files_get_kube_apiservers_defaults(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.yaml",
        webhooks("Mutating"),
        {"kind": "List", "items": [webhooks("Validating", clientConfig={"service": {"namespace": "n", "name": "s"}})]},
        policy(),
        registered("ValidatingAdmissionPolicyBinding", spec={"policyName": "a", "validationActions": ["Deny"]}),
        registered(
            "MutatingAdmissionPolicy",
            spec={
                "matchConstraints": {"resourceRules": [RULE]},
                "reinvocationPolicy": "Never",
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}
                ],
            },
        ),
        registered("MutatingAdmissionPolicyBinding", spec={"policyName": "a"}),
    )
    sources = loaded(file).sources
    [mutating] = sources.mutating_webhooks.items["a"]["webhooks"]
    filled = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, **SELECTORS}
    assert mutating == {**WEBHOOK, **filled, "rules": [{**RULE, "scope": "*"}], "reinvocationPolicy": "Never"}
    [validating] = sources.validating_webhooks.items["a"]["webhooks"]
    assert validating["clientConfig"]["service"] == {"namespace": "n", "name": "s", "port": 443}
    spec = sources.validating_policies.items["a"]["spec"]
    constraints = {"resourceRules": [{**RULE, "scope": "*"}], "matchPolicy": "Equivalent", **SELECTORS}
    assert (spec["failurePolicy"], spec["matchConstraints"]) == ("Fail", constraints)
    assert sources.validating_bindings.items["a"]["spec"]["validationActions"] == ["Deny"]
    assert sources.mutating_policies.items["a"]["spec"]["failurePolicy"] == "Fail"
    assert sources.mutating_bindings.items["a"]["spec"] == {"policyName": "a"}
    assert not sources.quotas.items


def test_all_errors_of_all_files_are_reported_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    write(tmp_path / "b.yaml", 7, {"kind": "X"}, {"apiVersion": "v1", "kind": "ConfigMap"})
    write(
        tmp_path / "c.yml",
        webhooks("Mutating", sideEffects="Some", failurepolicy="Ignore", timeoutSeconds=31, name="a"),
        webhooks("Validating", clientConfig={}, admissionReviewVersions=["v2"]),
        policy(validations=[], failurePolicy="fail"),
        registered("ValidatingAdmissionPolicyBinding", spec={"paramRef": {"name": "x", "selector": {}}}),
        registered("ValidatingAdmissionPolicy", spec={"validations": "none"}),
        registered("ValidatingAdmissionPolicies"),
        {**policy(), "apiVersion": "admissionregistration.k8s.io/v1beta1"},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}},
    )
    (tmp_path / "empty").mkdir()
    told = mistakes(tmp_path, tmp_path / "empty", tmp_path / "gone.yaml")
    shown = [re.sub(r"^[^:]*/", "", line).replace(str(tmp_path), "") for line in told]
    assert shown == [
        (
            "a.yaml: while parsing a flow node expected the node content, but found '<stream end>' in \"<byte string>\", line 1, column 5: "
            "a: [ ^"
        ),
        "b.yaml, document 1: is no object",
        "b.yaml, document 2: has no apiVersion or no kind",
        "b.yaml, document 3: ConfigMap has no metadata.name, or one that is no name",
        "c.yml, document 1: MutatingWebhookConfiguration 'a': unknown field webhooks[0].failurepolicy",
        (
            "c.yml, document 1: MutatingWebhookConfiguration 'a': webhooks[0].name: Invalid value: \"a\": "
            "should be a domain with at least three segments separated by dots"
        ),
        (
            "c.yml, document 1: MutatingWebhookConfiguration 'a': webhooks[0].sideEffects: Unsupported value: \"Some\": "
            'supported values: "None", "NoneOnDryRun"'
        ),
        (
            "c.yml, document 1: MutatingWebhookConfiguration 'a': webhooks[0].timeoutSeconds: Invalid value: 31: "
            "the timeout value must be between 1 and 30 seconds"
        ),
        (
            "c.yml, document 2: ValidatingWebhookConfiguration 'a': webhooks[0].clientConfig: Required value: "
            "exactly one of url or service is required"
        ),
        (
            "c.yml, document 2: ValidatingWebhookConfiguration 'a': webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: "
            "must include at least one of v1, v1beta1"
        ),
        (
            "c.yml, document 3: ValidatingAdmissionPolicy 'a': spec.failurePolicy: Unsupported value: \"fail\": "
            'supported values: "Fail", "Ignore"'
        ),
        (
            "c.yml, document 3: ValidatingAdmissionPolicy 'a': spec.validations: Required value: "
            "validations or auditAnnotations must be non-empty"
        ),
        "c.yml, document 4: ValidatingAdmissionPolicyBinding 'a': spec.policyName: Required value",
        "c.yml, document 4: ValidatingAdmissionPolicyBinding 'a': spec.paramRef.parameterNotFoundAction: Required value",
        (
            "c.yml, document 4: ValidatingAdmissionPolicyBinding 'a': spec.paramRef: Required value: "
            "exactly one of name or selector must be specified"
        ),
        "c.yml, document 4: ValidatingAdmissionPolicyBinding 'a': spec.validationActions: Required value",
        "c.yml, document 5: ValidatingAdmissionPolicy 'a' stands there twice",
        (
            "c.yml, document 5: ValidatingAdmissionPolicy 'a': json: cannot unmarshal string into Go struct field "
            "ValidatingAdmissionPolicySpec.spec.validations of type []v1.Validation"
        ),
        (
            "c.yml, document 6: ValidatingAdmissionPolicies 'a' of admissionregistration.k8s.io/v1 is unknown: "
            "MutatingWebhookConfiguration, ValidatingWebhookConfiguration, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, "
            "ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1 are known"
        ),
        (
            "c.yml, document 7: ValidatingAdmissionPolicy 'a' of admissionregistration.k8s.io/v1beta1 is unknown: "
            "MutatingWebhookConfiguration, ValidatingWebhookConfiguration, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, "
            "ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1 are known"
        ),
        "c.yml, document 8: ResourceQuota 'q': quotas are for clusters: nothing counts here what is used",
        "empty: no file of this folder ends with .yaml, .yml, .json",
        "gone.yaml: [Errno 2] No such file or directory: '/gone.yaml'",
    ]


UNDECLARED = "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^"


def test_every_expression_that_does_not_compile_is_an_error_with_its_place(tmp_path: Path) -> None:
    nope = {"name": "nope", "expression": "nope"}
    validations = [{"expression": "true"}, {"expression": "nope", "messageExpression": "nope"}]
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": "nope"}}
    configuration = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "nope"}}
    members = {"matchConditions": [nope], "variables": [{"name": "fine", "expression": "1"}, nope]}
    mutating = policy(**members, mutations=[mutation, configuration], reinvocationPolicy="Never")
    del mutating["spec"]["validations"]
    file = write(
        tmp_path / "a.yaml",
        policy(**members, validations=validations, auditAnnotations=[{"key": "k", "valueExpression": "nope"}]),
        {**mutating, "kind": "MutatingAdmissionPolicy"},
        webhooks("Validating", matchConditions=[{"name": "fine", "expression": "true"}, nope]),
        webhooks("Mutating", matchConditions=[nope]),
    )
    told = mistakes(file)
    assert [line.partition(f"{file}, ")[2] for line in told] == [
        f"document {document}: {kind} 'a': {place}: Invalid value: \"nope\": {UNDECLARED}"
        for document, kind, places in (
            (
                1,
                "ValidatingAdmissionPolicy",
                (
                    "spec.variables[1].expression",
                    "spec.validations[1].expression",
                    "spec.validations[1].messageExpression",
                    "spec.auditAnnotations[0].valueExpression",
                    "spec.matchConditions[0].expression",
                ),
            ),
            (
                2,
                "MutatingAdmissionPolicy",
                (
                    "spec.variables[1].expression",
                    "spec.matchConditions[0].expression",
                    "spec.mutations[0].jsonPatch.expression",
                    "spec.mutations[1].applyConfiguration.expression",
                ),
            ),
            (3, "ValidatingWebhookConfiguration", ("webhooks[0].matchConditions[1].expression",)),
            (4, "MutatingWebhookConfiguration", ("webhooks[0].matchConditions[0].expression",)),
        )
        for place in places
    ]


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"validations": [{"expression": "1"}]}, "spec.validations[0].expression: Invalid value: \"1\": must evaluate to bool but got int"),
        ({"validations": [{"expression": "params.a"}]}, "spec.validations[0].expression: Invalid value: \"params.a\": compilation failed"),
        ({"validations": [{"expression": ""}]}, "spec.validations[0].expression: Required value"),
        ({"validations": [{"message": "no"}]}, "spec.validations[0].expression: Required value"),
        ({"failurePolicy": "Perhaps"}, "spec.failurePolicy: Unsupported value"),
    ],
)  # fmt: skip
def test_mistyped_expression_is_an_error_and_a_missing_one_one_error(
    tmp_path: Path, members: dict[str, Any], told: str
) -> None:
    [mistake] = mistakes(write(tmp_path / "a.yaml", policy(**members)))
    assert mistake.startswith(f"{tmp_path / 'a.yaml'}: ValidatingAdmissionPolicy 'a': {told}")


def test_other_errors_are_reported_beside_one_that_does_not_compile(tmp_path: Path) -> None:
    members = {
        "failurePolicy": "Perhaps",
        "validations": [{"expression": "nope"}],
        "variables": [{"name": "x", "expression": "params"}],
    }
    assert len(mistakes(write(tmp_path / "a.yaml", policy(**members)))) == 3
    given = {**members, "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    assert len(mistakes(write(tmp_path / "a.yaml", policy(**given)))) == 2


async def test_other_objects_are_what_policies_take_as_parameters(tmp_path: Path) -> None:
    maximum = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"since": "x"}}
    file = write(
        tmp_path / "a.yaml",
        maximum,
        {**maximum, "metadata": {"name": "m", "namespace": "other"}},
        {"apiVersion": "rules.example.com/v1", "kind": "Limit", "metadata": {"name": "l"}},
    )
    params = loaded(file).sources.params
    maps = await params.kind("v1", "ConfigMap")
    await maps.synced()
    assert maps.namespaced
    assert (maps.get("default", "m") or {})["data"] == {"since": "x"}
    assert maps.get("other", "m") is not None
    assert (maps.get("", "m"), list(maps.all("third"))) == (None, [])
    limits = await params.kind("rules.example.com/v1", "Limit")
    assert not limits.namespaced
    assert [limit["metadata"]["name"] for limit in limits.all("")] == ["l"]
    assert list((await params.kind("v1", "Secret")).all("default")) == []
    text = "failed to find resource referenced by paramKind: 'rules.example.com/v1, Kind=Nothing'"
    with pytest.raises(NoSuchKind, match=re.escape(text)):
        await params.kind("rules.example.com/v1", "Nothing")


def test_texts_that_look_like_times_stay_texts(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {since: 2026-01-02}}")
    found = files.read([file], now=NOW)
    assert found.params["v1", "ConfigMap"][0]["data"] == {"since": "2026-01-02"}


async def test_a_changed_file_counts_once_it_has_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "POLL_SECONDS", 0.01)
    caplog.set_level("INFO", logger="apiserver.admission.core.files")
    write(tmp_path / "a.yaml", policy())
    followed = loaded(tmp_path)
    source = followed.sources.validating_policies

    async def told(message: str) -> None:
        await until(lambda: message in caplog.messages)
        caplog.clear()

    task = asyncio.create_task(followed.run())
    try:
        before = source.version
        (tmp_path / "b.yaml").write_text("kind: [")
        await told("the changed admission files are not used")
        assert (source.version, list(source.items)) == (before, ["a"])
        write(tmp_path / "b.yaml", {**policy(), "metadata": {"name": "b"}})
        await told("the changed admission files are used")
        assert source.version != before
        assert list(source.items) == ["a", "b"]
        assert followed.count == 2
    finally:
        task.cancel()
