"""S3 and DynamoDB on a free port: moto's, which answer HTTP as Amazon's do, with nothing kept."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import boto3
import requests
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.s3_login import Door, Environ, Keys
from tests.support.s3_outage import Outage

BUCKET: Final = "lake"
_KEYS: Final = Keys("double", "double")
_REGION: Final = "us-east-1"
_CONDITION: Final = "HTTP_IF_NONE_MATCH"


@dataclass
class Store:
    """A running double.

    Attributes:
        heeds_conditions: Whether `If-None-Match` is heeded, which some stores like S3 do not.
        lost_answers: How many conditional writes from now on are carried out and answered by an error.
        refused: The conditional writes that were not carried out.
    """

    url: str = ""
    heeds_conditions: bool = True
    lost_answers: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, ...]:
        """What leads Hadoop's S3A to it without keys, as `--set` takes it."""
        return (
            f"spark.conf.spark.hadoop.fs.s3a.endpoint={self.url}",
            f"spark.conf.spark.hadoop.fs.s3a.endpoint.region={_REGION}",
            "spark.conf.spark.hadoop.fs.s3a.path.style.access=true",
        )

    @property
    def settings(self) -> tuple[str, ...]:
        """What leads Hadoop's S3A to it, as `--set` takes it."""
        return (
            *self.address,
            f"spark.conf.spark.hadoop.fs.s3a.access.key={_KEYS.access}",
            f"spark.conf.spark.hadoop.fs.s3a.secret.key={_KEYS.secret}",
        )

    def client(self, service: str) -> Any:
        """A client of Amazon's own library for Python."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=_REGION,
            aws_access_key_id=_KEYS.access,
            aws_secret_access_key=_KEYS.secret,
        )

    def files(self, prefix: str, bucket: str = BUCKET) -> list[str]:
        """The names of a bucket's files below a prefix, without it."""
        pages = self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        found = (item["Key"] for page in pages for item in page.get("Contents", []))
        # What ends with a slash stands for a folder.
        return [key.removeprefix(prefix) for key in found if not key.endswith("/")]

    def read(self, file: str, bucket: str = BUCKET) -> bytes:
        """A file of a bucket."""
        content: bytes = self.client("s3").get_object(Bucket=bucket, Key=file)["Body"].read()
        return content

    def rows(self, table: str, bucket: str) -> int:
        """The rows of a table of the lake whose files were all only added, as its commits say."""
        log, found = f"lake/{table}/_delta_log/", 0
        for name in self.files(log, bucket):
            if name.endswith(".json"):
                lines = self.read(f"{log}{name}", bucket).splitlines()
                added = [action["add"] for line in lines if "add" in (action := json.loads(line))]
                found += sum(json.loads(file["stats"])["numRecords"] for file in added)
        return found


class _Silent(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: there are thousands, with what each is asked for."""


@contextmanager
def s3_double(door: Door | None = None, outage: Outage | None = None) -> Iterator[Store]:
    """Runs a double with an empty bucket, in a thread of this process.

    Args:
        door: Lets in who may, besides the double's own client; everybody may if there is none.
        outage: Decides which requests get no answer, or another one; none if there is none.
    """
    store = Store()
    application = _atomic(store)
    if door:
        door.valid.add(_KEYS)
        application = door.before(application)
    if outage:
        application = outage.before(application)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Silent)
    store.url = f"http://127.0.0.1:{server.port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        requests.post(f"{store.url}/moto-api/reset", timeout=30)
        store.client("s3").create_bucket(Bucket=BUCKET)
        yield store
    finally:
        if outage:
            outage.end()
        server.shutdown()
        thread.join()
        server.server_close()


def _atomic(store: Store) -> Callable[[Environ, Callable[..., Any]], Iterable[bytes]]:
    """Moto looks and then puts; S3 does both at once, and so does this."""
    moto, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def answer(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        conditional = _CONDITION in environ and environ["REQUEST_METHOD"] in ("PUT", "POST")
        if conditional and not store.heeds_conditions:
            del environ[_CONDITION]

        def noting(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if conditional and status.startswith("412"):
                store.refused.append(environ["PATH_INFO"])
            elif conditional and status.startswith("200") and store.lost_answers > 0:
                store.lost_answers -= 1
                status = "500 Internal Server Error"
            return start_response(status, headers, *rest)

        with one_at_a_time:
            return list(moto(environ, noting))

    return answer
