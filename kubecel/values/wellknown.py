"""The protobuf messages that every expression may name: `google.protobuf.Int64Value{value: 3}`.

Upstream: protocolbuffers/protobuf `src/google/protobuf/{any,duration,empty,struct,timestamp,wrappers}.proto`, google/cel-go
`common/types/pb/pb.go`.
"""

from __future__ import annotations

from types import MappingProxyType

from kubecel.values.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, Type, list_of, map_of

_SECONDS = {"seconds": INT, "nanos": INT}

# Messages with their fields.
FIELDS: MappingProxyType[str, dict[str, Type]] = MappingProxyType(
    {
        "google.protobuf.Any": {"type_url": STRING, "value": BYTES},
        "google.protobuf.BoolValue": {"value": BOOL},
        "google.protobuf.BytesValue": {"value": BYTES},
        "google.protobuf.DoubleValue": {"value": DOUBLE},
        "google.protobuf.Duration": _SECONDS,
        "google.protobuf.Empty": {},
        "google.protobuf.FloatValue": {"value": DOUBLE},
        "google.protobuf.Int32Value": {"value": INT},
        "google.protobuf.Int64Value": {"value": INT},
        "google.protobuf.ListValue": {"values": list_of(DYN)},
        "google.protobuf.StringValue": {"value": STRING},
        "google.protobuf.Struct": {"fields": map_of(STRING, DYN)},
        "google.protobuf.Timestamp": _SECONDS,
        "google.protobuf.UInt32Value": {"value": UINT},
        "google.protobuf.UInt64Value": {"value": UINT},
        "google.protobuf.Value": {
            "null_value": INT,
            "number_value": DOUBLE,
            "string_value": STRING,
            "bool_value": BOOL,
            "struct_value": map_of(STRING, DYN),
            "list_value": list_of(DYN),
        },
    }
)

# The values of their enumerations.
CONSTANTS: MappingProxyType[str, int] = MappingProxyType({"google.protobuf.NullValue.NULL_VALUE": 0})
