"""A schema registry behind a proxy, with the schemas that the producers of a run use."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import requests

from chaos.proxy import Proxy
from chaos.values import schemas
from testbed.schema_registry import schema_registry

_PATH: Final = "/apis/ccompat/v7"
_WITHIN_S: Final = 30.0


@dataclass(frozen=True)
class Registry:
    """A registry that runs.

    Attributes:
        proxy: where its clients connect.
        ids: of `chaos.values.schemas()`.
    """

    proxy: Proxy
    ids: Sequence[int]

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"http://127.0.0.1:{self.proxy.port}{_PATH}"


@contextmanager
def running_registry() -> Iterator[Registry]:
    """Run a registry for the length of a block.

    Yields:
        It, with `chaos.values.schemas()`.
    """
    with schema_registry() as url:
        ids = [_registered(url, number, schema) for number, schema in enumerate(schemas())]
        proxy = Proxy(urlsplit(url).port or 0)
        try:
            yield Registry(proxy, ids)
        finally:
            proxy.close()


def _registered(url: str, number: int, schema: object) -> int:
    asked = requests.post(
        f"{url}/subjects/readings-{number}/versions", json={"schema": json.dumps(schema)}, timeout=_WITHIN_S
    )
    asked.raise_for_status()
    return int(asked.json()["id"])
