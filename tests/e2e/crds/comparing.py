"""Compare answers without what each server makes itself: uids, times and versions."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
from typing import Any

from tests.fixtures.server import Reply

JSON = "application/json"
_MADE = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "continue")
_AGE = re.compile(r"(?:\d+[smhdy])+")
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TEXTS = re.compile(r'(resourceVersion|uid)(\\*": ?\\*")[0-9a-f-]+')
_UNDECLARED = re.compile(r"(?:errors:\n)?(?:\s*\.\S.*?: field not declared in schema\n?)+")


def seen(reply: Reply) -> dict[str, Any]:
    """The parts of an answer that are compared: code, type, warnings and body."""
    content = reply.headers.get("Content-Type", "")
    found: dict[str, Any] = {"code": reply.status}
    if content != JSON:
        found["type"] = content
    if warnings := reply.headers.get_all("Warning"):
        found["warnings"] = sorted(warnings)
    found["body"] = _body(json.loads(reply.body)) if content.startswith(JSON) and reply.body else _text(reply.text)
    return found


def difference(expected: dict[str, Any], got: dict[str, Any]) -> str:
    """The lines that differ."""
    theirs, ours = (
        json.dumps(one, indent=1, sort_keys=True, ensure_ascii=False).splitlines() for one in (expected, got)
    )
    lines = list(difflib.unified_diff(theirs, ours, "kube-apiserver", "Sluice", lineterm="", n=3))
    return "\n".join(line[:2000] for line in lines[2:60])


def _body(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    if body.get("kind") == "Status":
        return _status(body)
    if "metadata" in body:
        body["metadata"] = _metadata(body["metadata"])
    if isinstance(items := body.get("items"), list):
        body["items"] = [_body(item) for item in items]
    if isinstance(rows := body.get("rows"), list):
        for row in rows:
            row["cells"] = [
                "<age>" if isinstance(cell, str) and _AGE.fullmatch(cell) else cell for cell in row["cells"]
            ]
            row["object"] = _body(row["object"])
    return body


def _status(body: dict[str, Any]) -> Any:
    """Errors of several fields come in the order of Go's maps."""
    details = body.get("details")
    if isinstance(details, dict):
        details.pop("uid", None)
        if causes := details.get("causes"):
            for cause in causes:
                cause["message"] = _text(cause.get("message", ""))
            causes.sort(key=lambda cause: json.dumps(cause, sort_keys=True))
    # Structured merge stops at the first unknown member of a map, which is any of them.
    message = _UNDECLARED.sub("<fields>: field not declared in schema", _text(body.get("message", "")))
    if message.count(": ") > 3 or "errors:" in message:
        message = " ".join(sorted(re.split(r"[\s,\[\]]+", message)))
    return {**body, "message": message}


def _metadata(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return metadata
    made: dict[str, Any] = {name: f"<{name}>" if name in _MADE and value else value for name, value in metadata.items()}
    if entries := made.get("managedFields"):
        for entry in entries:
            if "time" in entry:
                entry["time"] = "<time>"
        # Entries of an operation are sorted by time first, and a second may end between two steps.
        entries.sort(key=lambda entry: json.dumps(entry, sort_keys=True))
    return made


def _text(text: str) -> str:
    text = _TEXTS.sub(r"\1\2<made>", _TIME.sub(lambda found: "<time>" if _is_now(found[0]) else found[0], text))
    # A refusal of a patch shows the object. Its managers are sorted by time, and a second may end between two steps.
    return "".join(sorted(text)) if "managedFields" in text else text


def _is_now(text: str) -> bool:
    return abs(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(text)) < dt.timedelta(days=1)
