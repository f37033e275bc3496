"""A proposed change, as every admission plugin sees it."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.apimachinery.request import RequestInfo, User, Warnings
from apiserver.schema.resource import Object, Resource


@dataclass(slots=True, kw_only=True)
class Attributes:
    """`operation` is CREATE, UPDATE or DELETE. Mutating plugins change `object` in place; on DELETE it is None.

    `old` is the stored object (None on CREATE) and belongs to the store: nobody changes it. `name` is empty while a name is
    still to be generated and for the objects of a deletecollection.
    """

    operation: str
    info: RequestInfo
    user: User
    resource: Resource
    name: str
    object: Object | None
    old: Object | None
    dry_run: bool
    warnings: Warnings
