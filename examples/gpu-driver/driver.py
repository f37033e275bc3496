"""Publish the GPUs of a node as a ResourceSlice, and keep it up to date. README.md says how to run it."""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
from typing import Any

from kubernetes_asyncio import client, config

DRIVER = "gpu.example.org"
GROUP, VERSION, PLURAL = "resource.k8s.io", "v1", "resourceslices"
INVENTORY_SECONDS = 10.0
"""Between two looks at the inventory."""


def slice_of(node: str, gpus: list[dict[str, str]]) -> dict[str, Any]:
    """Return the slice of a node. Its pool has this one slice, so the pool's generation can stay."""
    devices = [
        {
            "name": gpu["uuid"],
            "attributes": {"model": {"string": gpu["model"]}},
            "capacity": {"memory": {"value": gpu["memory"]}},
        }
        for gpu in gpus
    ]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


async def publish(api: client.CustomObjectsApi, node: str, gpus: list[dict[str, str]]) -> None:
    """Apply the node's slice, and delete others that this driver left there."""
    wanted = slice_of(node, gpus)
    name = wanted["metadata"]["name"]
    await api.patch_cluster_custom_object(
        GROUP,
        VERSION,
        PLURAL,
        name,
        wanted,
        field_manager=DRIVER,
        force=True,
        _content_type="application/apply-patch+yaml",
    )
    mine = f"spec.driver={DRIVER},spec.nodeName={node}"
    listed = await api.list_cluster_custom_object(GROUP, VERSION, PLURAL, field_selector=mine)
    for item in listed["items"]:
        if item["metadata"]["name"] != name:
            await api.delete_cluster_custom_object(GROUP, VERSION, PLURAL, item["metadata"]["name"])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True, help="the name of the node")
    parser.add_argument("--inventory", type=pathlib.Path, required=True, help="a JSON file with the node's GPUs")
    parser.add_argument("--once", action="store_true", help="publish once and end")
    given = parser.parse_args()
    await config.load_kube_config()
    published: list[dict[str, str]] | None = None
    async with client.ApiClient() as connection:
        api = client.CustomObjectsApi(connection)
        while True:
            gpus = json.loads(await asyncio.to_thread(given.inventory.read_text))
            if gpus != published:
                await publish(api, given.node, gpus)
                published = gpus
            if given.once:
                return
            await asyncio.sleep(INVENTORY_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
