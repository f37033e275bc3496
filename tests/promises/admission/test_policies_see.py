"""The view of a request in the expressions of a validating policy.

One policy for each sort of request has a validation for each line of its table. It warns, so that one request answers all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.promises.admission import stage as requests
from tests.promises.admission.cluster import Cluster
from tests.promises.admission.stage import Policy, Stage, Stages
from tests.promises.api.client import Client
from tests.promises.api.target import Target

WARN = ({"validationActions": ["Warn"]},)
VARIABLES = {
    "one": "1",
    "two": "variables.one + 1",
    "names": "object.spec.devices.requests.map(r, r.name)",
    "config": "object.spec.devices.config[0].opaque.parameters",
    "labels": "object.metadata.labels",
    "sizes": "{'a': size(variables.names), 'b': variables.two}",
    "missing": "object.?spec.?nope",
    "quantity": "quantity('40Gi')",
}

BROKEN = 'composited variable "broken2" fails to evaluate: '

_NAMESPACE = {
    "namespaceObject.metadata.name == request.namespace": True,
    "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == request.namespace": True,
    "namespaceObject.status.phase == 'Active'": True,
    "namespaceObject.spec.finalizers == ['kubernetes']": True,
    "has(namespaceObject.metadata.annotations)": False,
    "has(namespaceObject.metadata.deletionTimestamp)": False,
    "has(namespaceObject.metadata.generateName)": False,
    "has(namespaceObject.status.conditions)": False,
    "dyn(namespaceObject).metadata.uid != ''": True,
    "type(dyn(namespaceObject).metadata.creationTimestamp) == string": True,
    "has(dyn(namespaceObject).metadata.managedFields) || has(dyn(namespaceObject).kind)": False,
}
_USER = {
    "request.userInfo.username != ''": True,
    "request.userInfo.groups.exists(g, g == 'system:masters')": True,
    "request.userInfo.groups.exists(g, g == 'system:authenticated')": True,
    "has(request.userInfo.uid)": False,
    "has(request.userInfo.extra)": True,
    "request.userInfo.extra.all(k, v, size(v) > 0)": True,
}
_OBJECT = {
    "object.kind == 'ResourceClaim' && object.kind == request.kind.kind": True,
    "object.apiVersion == request.kind.group + '/' + request.kind.version": True,
    "has(object.metadata.uid) && has(object.metadata.creationTimestamp) && has(object.metadata.managedFields)": True,
    "type(object.metadata.creationTimestamp) == string": True,
    "timestamp(object.metadata.creationTimestamp) < timestamp('2100-01-01T00:00:00Z')": True,
    "has(object.metadata.resourceVersion)": False,
    "has(object.metadata.generation)": False,
    "has(object.metadata.generateName)": False,
    "has(object.metadata.finalizers) || has(object.metadata.ownerReferences)": False,
    "object.metadata.namespace == request.namespace && object.metadata.name == request.name": True,
    "object.metadata.managedFields.all(f, f.operation == 'Update' && f.fieldsType == 'FieldsV1')": True,
    "has(object.status)": True,
    "object.status == {}": True,
    "object.metadata.labels['tier'] == 'web' && object.metadata.labels.tier == 'web'": True,
    "'tier' in object.metadata.labels && !('other' in object.metadata.labels)": True,
    "object.metadata.annotations.note == 'héllo' && size(object.metadata.annotations.note) == 5": True,
    "object.metadata.annotations.empty == ''": True,
    "object.?spec.?nope.orValue('other') == 'other'": True,
    "object.spec.devices.requests.size() == 2": True,
    "object.spec.devices.requests.map(r, r.name) == ['one', 'two']": True,
    "object.spec.devices.requests[0].exactly.allocationMode == 'ExactCount'": True,
    "object.spec.devices.requests[0].exactly.count == 1": True,
    "object.spec.devices.requests.map(r, r.exactly.count).sum() == 3": True,
    "type(object.spec.devices.requests[1].exactly.count) == int": True,
    "has(object.spec.devices.requests[0].firstAvailable)": False,
    "has(object.spec.devices.constraints)": False,
    "object.spec.devices.config[0].opaque.parameters.kind == 'Gpu'": True,
    "type(object.spec.devices.config[0].opaque.parameters.n) == int": True,
    "type(object.spec.devices.config[0].opaque.parameters.f) == double": True,
    "object.spec.devices.config[0].opaque.parameters.list == [dyn(1), dyn('a'), dyn(null)]": True,
    "object.spec.devices.config[0].opaque.parameters.list[2] == null": True,
    "object == object": True,
    "oldObject == null": True,
    "object == oldObject": False,
}
_ERRORS = {
    "object.nope == 1": "no such key: nope",
    "object.spec.devices.requests[2].name == 'x'": "index out of bounds: 2",
    "object.metadata.labels['other'] == ''": "no such key: other",
    "oldObject.metadata.name == 'x'": "no such key: metadata",
    "request.options.nope == 'x'": "no such key: nope",
    "request.subResource == 'x'": "no such key: subResource",
    "object.metadata.name > 5": "no such overload",
    "object.spec.startsWith('x')": "no such overload",
    "int(object.metadata.labels.tier) == 1": "type conversion error from 'string' to 'int'",
    "1 / (size(object.spec) - 1) == 0": "division by zero",
    "object.metadata.labels.tier.matches(object.metadata.annotations.note + '(')": "error parsing regexp: missing closing ): `héllo(`",
    "variables.broken == 1": 'composited variable "broken" fails to evaluate: division by zero',
    "variables.broken2 == 1": BROKEN + 'composited variable "broken" fails to evaluate: division by zero',
    "variables.costly": 'composited variable "costly" fails to evaluate: operation cancelled: actual cost limit exceeded',
}
_REQUEST = {
    "request.operation == 'CREATE'": True,
    "request.kind.kind == 'ResourceClaim' && request.kind.version == 'v1'": True,
    "request.resource.resource == 'resourceclaims' && request.resource.version == 'v1'": True,
    "request.kind == request.requestKind && request.resource == request.requestResource": True,
    "request.kind.group == request.resource.group": True,
    "has(request.subResource) || has(request.requestSubResource)": False,
    "request.dryRun": True,
    "request.options.kind == 'CreateOptions' && request.options.apiVersion == 'meta.k8s.io/v1'": True,
    "request.options.dryRun == ['All']": True,
    "has(request.options.fieldManager) || has(request.options.fieldValidation)": False,
}
_VARIABLES = {
    "variables.one == 1 && variables.two == 2": True,
    "variables.names == ['one', 'two'] && variables.names.join('-') == 'one-two'": True,
    "variables.config.n == 1": True,
    "variables.labels.tier == 'web'": True,
    "variables.sizes == {'a': 2, 'b': 2} && variables.sizes.a == 2": True,
    "variables.missing.orValue(3) == 3": True,
    "variables.quantity.isGreaterThan(quantity('1Gi'))": True,
    "has(variables.one)": True,
    "type(variables.one) == int": True,
}
_AUTHORIZER = {
    "authorizer.requestResource.check('create').allowed()": True,
    "authorizer.requestResource.check('create').reason() == ''": True,
    "authorizer.group(request.resource.group).resource('resourceclaims').namespace('x').name('y').check('get').allowed()": True,
    "authorizer.path('/healthz').check('get').allowed()": True,
    "authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('get').allowed()": False,
    "authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('get').errored()": False,
    "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=x').check('list').allowed()": True,
    "authorizer.group('').resource('pods').labelSelector('a in (b,c)').check('list').error() == ''": True,
}
_LIBRARIES = {
    "semver('1.2.3').isLessThan(semver('1.10.0'))": True,
    "cidr('10.0.0.0/8').containsIP('10.1.2.3')": True,
    "ip('::1').family() == 6": True,
    "url('https://a.example.com:80/x?y=z').getHostname() == 'a.example.com'": True,
    "sets.contains(['a', 'b'], ['a'])": True,
    "'%s is %d' .format(['x', 5]) == 'x is 5'": True,
    "format.dns1123Label().validate(object.metadata.name) == optional.none()": True,
    "object.metadata.labels.transformList(k, v, v).exists(v, v == 'web')": True,
    "[3, 1, 2].sort() == [1, 2, 3]": True,
    "['a', 'b'].indexOf('b') == 1 && 'A-b'.lowerAscii().split('-') == ['a', 'b']": True,
    "duration('1h') > duration('59m')": True,
}
_UPDATE = {
    "request.operation == 'UPDATE'": True,
    "request.options.kind == 'UpdateOptions'": True,
    "oldObject.metadata.labels.tier == 'web' && object.metadata.labels.tier == 'db'": True,
    "oldObject.metadata.uid == object.metadata.uid": True,
    "object.metadata.resourceVersion == oldObject.metadata.resourceVersion": True,
    "object.spec == oldObject.spec": True,
    "oldObject.kind == object.kind && oldObject.apiVersion == object.apiVersion": True,
    "request.name == oldObject.metadata.name": True,
    "authorizer.requestResource.check('update').allowed()": True,
}
TABLES: Mapping[str, tuple[requests.Ask, Mapping[str, bool | str | None]]] = {
    "object": (requests.create, _OBJECT),
    "request": (requests.create, _REQUEST),
    "namespace": (requests.create, _NAMESPACE),
    "user": (requests.create, _USER),
    "errors": (requests.create, _ERRORS),
    "variables": (requests.create, _VARIABLES),
    "authorizer": (requests.create, _AUTHORIZER),
    "libraries": (requests.create, _LIBRARIES),
    "generated": (
        requests.generated,
        {
            "request.name == object.metadata.name": True,
            "object.metadata.name.startsWith(object.metadata.generateName)": True,
            "request.dryRun || has(request.options.dryRun)": False,
            "request.options.fieldManager == 'promises' && request.options.fieldValidation == 'Strict'": True,
            "object.metadata.managedFields.all(f, f.manager == 'promises')": True,
        },
    ),
    "replace": (requests.replace, _UPDATE),
    "patch": (
        requests.patch,
        {**_UPDATE, "request.dryRun && request.options.dryRun == ['All']": True, "request.options.fieldManager == 'promises'": True},
    ),
    "apply": (
        requests.apply,
        {
            "request.operation == 'CREATE'": True,
            "request.options.kind == 'CreateOptions' && request.options.fieldManager == 'promises'": True,
            "has(request.options.force)": False,
            "oldObject == null": True,
            "object.metadata.managedFields.all(f, f.operation == 'Apply')": True,
        },
    ),
    "status": (
        requests.status,
        {
            "request.operation == 'UPDATE'": True,
            "request.subResource == 'status' && request.requestSubResource == 'status'": True,
            "request.kind.kind == 'ResourceClaim' && request.resource.resource == 'resourceclaims'": True,
            "has(object.status.reservedFor) && !has(oldObject.status.reservedFor)": True,
            "object.status.allocation.devices == {}": True,
            "object.spec == oldObject.spec": True,
        },
    ),
    "delete": (
        requests.delete,
        {
            "request.operation == 'DELETE'": True,
            "object == null": True,
            "oldObject.kind == 'ResourceClaim' && oldObject.metadata.name == request.name": True,
            "has(oldObject.metadata.deletionTimestamp)": False,
            "request.options.kind == 'DeleteOptions' && request.options.apiVersion == 'meta.k8s.io/v1'": True,
            "request.options.propagationPolicy == 'Background'": True,
            "request.options.gracePeriodSeconds == 7": True,
            "has(request.options.preconditions)": False,
            "object.metadata.name == 'x'": "no such key: metadata",
        },
    ),
    "collection": (
        requests.delete_collection,
        {
            "request.operation == 'DELETE' && object == null": True,
            "has(request.name)": False,
            "has(oldObject.metadata.name)": True,
            "request.namespace == oldObject.metadata.namespace": True,
        },
    ),
    "class": (
        requests.class_,
        {
            "namespaceObject == null": True,
            "has(request.namespace)": False,
            "namespaceObject.metadata.name == 'x'": "no such key: metadata",
            "object.kind == 'DeviceClass' && object.spec == {}": True,
            "has(object.metadata.generation)": True,
            "request.resource.resource == 'deviceclasses'": True,
        },
    ),
    "older": (
        requests.older,
        {
            "object.apiVersion.endsWith('/v1beta1') && request.kind.version == 'v1beta1'": True,
            "request.resource.version == 'v1beta1' && request.requestResource.version == 'v1beta1'": True,
            "object.spec.devices.requests[1].count == 2": True,
            "has(object.spec.devices.requests[1].exactly)": False,
        },
    ),
    "equivalent": (
        requests.create,
        {
            "object.apiVersion.endsWith('/v1beta1') && request.kind.version == 'v1beta1'": True,
            "request.resource.version == 'v1beta1' && request.requestResource.version == 'v1'": True,
            "request.requestKind.version == 'v1'": True,
            "object.spec.devices.requests[1].count == 2": True,
            "variables.one == 1 && object.metadata.labels.tier == 'web'": True,
        },
    ),
}  # fmt: skip
RULES = {"equivalent": {"apiVersions": ["v1beta1"]}}
LOOP = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, {})"
COSTLY = "true"
for _ in range(7):
    COSTLY = LOOP.format(COSTLY)
ERRING = {"broken": "1 / 0", "broken2": "variables.broken + 1", "costly": COSTLY}
ROWS = [(table, text) for table, (_, rows) in TABLES.items() for text, outcome in rows.items() if outcome is not None]


def _policy(table: str) -> Policy:
    ask, rows = TABLES[table]
    validations = [{"expression": text, "message": f"#{at}"} for at, text in enumerate(rows) if rows[text] is not None]
    variables = [{"name": name, "expression": text} for name, text in (VARIABLES | ERRING).items()]
    spec = {"validations": validations, "variables": variables}
    return Policy(spec, bindings=WARN, rule=RULES.get(table, {}), ask=ask)


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    made = Stages({table: _policy(table) for table in TABLES}, "see")
    yield made
    made.leave()


@pytest.fixture
def stage(cluster: Cluster, target: Target, api: Client, stages: Stages) -> Stage:
    """With all policies of this file."""
    return stages.on(cluster, target, api)


@pytest.mark.parametrize(("table", "text"), ROWS)
def test_an_expression_sees(stage: Stage, table: str, text: str) -> None:
    rows = TABLES[table][1]
    expected, at = rows[text], list(rows).index(text)
    warned = stage.warned(table)
    failed = f"expression '{text}' resulted in error: "
    errors = [said.removeprefix(failed) for said in warned if said.startswith(failed)]
    outcome: bool | str = errors[0] if errors else f"#{at}" not in warned
    assert outcome == expected
