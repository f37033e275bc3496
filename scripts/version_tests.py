"""Name the test of each difference between Kubernetes releases, for docs/versions.md.

Keys are those of `versions.Row`: `place:attribute` of kinds, `gate NAME`, the place of a constant. The first pattern that fits counts.
"""

from __future__ import annotations

import ast
import fnmatch
import pathlib
import re
from collections.abc import Iterator, Sequence

_RELEASES = re.compile(r"\bV1_\d+\b|\bSUPPORTED\b|\bBY_RELEASE\b|emulated-version|\brelease")

_FEATURES = "tests/unit/resources/test_features.py"
_SLICES = "tests/unit/resources/test_resourceslice.py"
_POOLS = "tests/unit/resources/test_resourcepoolstatusrequest.py"
_RULES = "tests/unit/resources/test_devicetaintrule.py"
_META = "tests/unit/apimachinery/test_meta.py"
_MANAGED = "tests/promises/api/test_field_management.py"
_UNREADABLE = "tests/e2e/test_unreadable.py"
_GUARDED = f"{_FEATURES}::test_exactly_what_a_gate_guards_goes_while_it_is_off"
_CASES = "tests/promises/test_resource_cases.py::test_a_case_of_the_table_holds"
_DECLARED = (
    "tests/unit/validation/test_declarative.py::test_a_release_without_declarations_reports_the_errors_of_the_kind"
)

TESTS: Sequence[tuple[str, str]] = (
    ("*:expected", "tests/promises/api/test_discovery.py::test_openapi_says_which_fields_a_kind_requires"),
    (
        "DeviceClass:declarations",
        "tests/promises/api/test_create.py::test_name_of_a_class_is_reported_where_its_type_declares_it",
    ),
    ("*:declarations", _DECLARED),
    ("DeviceTaintRule:shape", f"{_RULES}::test_writes_get_the_errors_of_the_release"),
    (
        "DeviceTaintRule:deprecation",
        "tests/promises/api/test_device_taint_rules.py::test_every_version_shows_the_same_rule",
    ),
    ("DeviceTaintRule.status:validate", f"{_RULES}::test_writes_get_the_errors_of_the_release"),
    ("DeviceTaintRule*", f"{_RULES}::test_a_release_serves_its_versions"),
    ("*.derivedAttributes:", _GUARDED),
    ("*.skipNodeOperations:", _GUARDED),
    ("*.compatibilityGroups:", _GUARDED),
    ("*.partitionTypeAttribute:", _GUARDED),
    ("*.nodeAllocatableResources:", _GUARDED),
    ("*.nodeAllocatableResourceMappings:", f"{_SLICES}::test_node_allocatable_mappings_are_dropped_unless_in_use"),
    (
        "*.tolerations:check",
        "tests/unit/resources/test_resourceclaim.py::test_tolerations_of_an_allocation_are_checked_from_1_37_on",
    ),
    ("ResourceClaim.*", _CASES),
    (
        "*.defaultPartitionTypeAttribute:",
        f"{_POOLS}::test_a_default_attribute_is_dropped_with_its_gate_off",
    ),
    ("*Summary:", f"{_POOLS}::test_a_table_sums_up_the_pools"),
    (
        "ResourcePoolStatusRequest.status.conditions:check",
        f"{_POOLS}::test_a_repeated_condition_is_reported_twice_in_1_36",
    ),
    ("ResourcePoolStatusRequest*", f"{_POOLS}::test_a_spec_is_checked"),
    ("*.capacity:ratchets", f"{_SLICES}::test_capacities_that_are_stored_are_checked_again_until_1_37"),
    ("ResourceSlice.spec.devices:rule", f"{_SLICES}::test_a_range_is_judged_as_kubernetes_1_37_does"),
    ("ResourceSlice.Pool:description", f"{_SLICES}::test_slices_can_be_selected_by_their_pool_from_1_37_on"),
    ("*.pool.name:selectable", f"{_SLICES}::test_slices_can_be_selected_by_their_pool_from_1_37_on"),
    ("ResourceSlice.spec*", _CASES),
    (
        "gate WatchListCompression",
        "tests/promises/api/test_watch_list_compression.py::test_watch_that_begins_with_a_list_is_compressed_since_1_37",
    ),
    ("gate AllowUnsafeMalformedObjectDeletion", f"{_UNREADABLE}::test_unsafe_deletion_of_a_readable_object_is_refused"),
    ("gate *", f"{_FEATURES}::test_each_gate_has_the_stage_of_its_release"),
    (
        "admission.policies.binding.READS_LATE",
        "tests/unit/admission/policies/test_validating.py::test_a_parameter_that_has_not_arrived_is_read_since_1_37",
    ),
    (
        "admission.policies.validating.MOST_FAILURES",
        "tests/unit/admission/policies/test_validating.py::test_audit_lists_failures_of_all_policies_since_1_37",
    ),
    ("apimachinery.meta.ONE_OWNER_ERRORS", f"{_META}::test_an_owner_reference_is_complete_since_1_37"),
    ("apimachinery.meta.OPERATION_ERROR", f"{_META}::test_operation_of_managed_fields_is_one_of_two"),
    (
        "apimachinery.options.NOT_BESIDE_IGNORING",
        "tests/unit/apimachinery/test_options.py::test_ignoring_read_errors_goes_with_nothing_else",
    ),
    (
        "discovery.groups.PATCH_LEVEL",
        "tests/unit/discovery/test_groups.py::test_the_version_document_has_gos_members_in_order",
    ),
    (
        "fieldmanager.fieldsets.REFUSES_TRAILING_DATA",
        f"{_MANAGED}::test_managers_with_data_after_a_value_are_kept_or_dropped",
    ),
    (
        "fieldmanager.manager.AFTER_FAILURE",
        "tests/unit/fieldmanager/test_manager.py::test_a_version_that_cannot_be_read_takes_the_managers_of_an_update",
    ),
    ("filters.node_authorizer.PREFIX", "tests/unit/filters/test_node_authorizer.py::test_the_reasons_are_upstreams"),
    ("schema.openapi.TELLS_ELEMENTS", "tests/unit/schema/test_openapi.py::test_elements_have_no_default_from_1_37_on"),
    (
        "structural.*.IS_INTEGRAL",
        "tests/unit/structural/test_validation.py::test_float_near_a_whole_number_is_an_integer_from_1_37_on",
    ),
    (
        "verbs.lifecycle.REPORTED",
        "tests/unit/verbs/test_lifecycle.py::test_update_lists_an_error_once_since_1_37",
    ),
    (
        "verbs.patch.CHECK_JSON",
        "tests/promises/api/test_update_and_patch.py::test_patch_that_is_no_json_is_400_before_the_object_is_looked_up_since_1_37",
    ),
    ("verbs.patch.CHECK_YAML", f"{_MANAGED}::test_configuration_that_is_no_object_or_no_yaml_is_400"),
    ("verbs.patch.APPLIED_NOUN", f"{_MANAGED}::test_configuration_that_is_no_object_or_no_yaml_is_400"),
    ("verbs.selection.COUNTS_SHARDS", "tests/promises/api/test_shards.py::test_a_list_of_a_shard_comes_in_chunks"),
    ("verbs.unreadable.REPORT", f"{_UNREADABLE}::test_list_with_the_gate_reports_unreadable_objects"),
    ("verbs.unreadable.NOT_UNREADABLE", f"{_UNREADABLE}::test_unsafe_deletion_of_a_readable_object_is_refused"),
    (
        "verbs.watch.WATCH_LIST_BUCKETS",
        "tests/unit/test_app.py::test_watch_lists_are_counted_in_the_buckets_of_the_release",
    ),
    ("kubecel.environments.BASE", "tests/promises/cel/test_releases.py::test_expression_means_what_its_release_says"),
)


class Tests:
    """The tests of the checkout that are in files which tell releases apart. `unused` are the patterns without a difference."""

    def __init__(self, root: pathlib.Path, folders: Sequence[str]) -> None:
        files = [path for folder in folders for path in sorted((root / folder).rglob("test_*.py"))]
        self._names = {
            f"{path.relative_to(root)}::{name}"
            for path in files
            if _RELEASES.search(source := path.read_text())
            for name in _functions(source)
        }
        self.unused = {pattern for pattern, _ in TESTS}

    def of(self, key: str) -> str:
        """Return the test of a difference, "" without one."""
        for pattern, test in TESTS:
            if fnmatch.fnmatchcase(key, pattern):
                self.unused.discard(pattern)
                return test if test in self._names else ""
        return ""


def _functions(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name
