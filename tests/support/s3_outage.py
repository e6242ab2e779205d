"""What stands before the double of S3 and keeps requests from it, as an outage of a store does."""

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
# Silent: the connection is accepted, the request is taken, and nothing is said. Busy: fewer requests, please.
Kind = Literal["silent", "busy"]

_BUSY: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message><RequestId>1</RequestId></Error>"
)


@dataclass
class Outage:
    """Which requests do not get through, by their methods and paths.

    Attributes:
        kept: The requests that were kept, in order: method and path.
    """

    kept: list[str] = field(default_factory=list)
    _kind: Kind | None = None
    _of: Callable[[str], bool] = bool
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, kind: Kind, of: Callable[[str], bool] = bool) -> None:
        """Keeps requests from now on.

        Args:
            kind: What their senders see.
            of: Says of a request, as `PUT /bucket/path`, whether it is kept; asked of one at a time.
        """
        self.kept, self._kind, self._of, self._over = [], kind, of, threading.Event()

    def end(self) -> None:
        """Lets everything through; who still waits is asked to send the request again."""
        self._kind = None
        self._over.set()

    def before(self, application: Application) -> Application:
        """An application that requests get to unless they are kept."""

        def answer(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
            request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
            kind, over = self._keeps(request), self._over
            # The double's own client, of this process, is not part of what is tested.
            if kind is None or "Boto" in environ.get("HTTP_USER_AGENT", ""):
                return application(environ, start_response)
            if kind == "silent":
                over.wait()
            body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _BUSY
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            # What the client still sends would be taken for its next request.
            start_response("503 Slow Down", [*headers, ("Connection", "close")])
            return [body]

        return answer

    def _keeps(self, request: str) -> Kind | None:
        with self._lock:
            if self._kind is None or not self._of(request):
                return None
            self.kept.append(request)
            return self._kind


def from_one_on(pattern: str) -> Callable[[str], bool]:
    """Says of requests whether they come since one in which a pattern is found."""
    begun = threading.Event()

    def is_after(request: str) -> bool:
        if re.search(pattern, request):
            begun.set()
        return begun.is_set()

    return is_after


def first_of_each() -> Callable[[str], bool]:
    """Says of requests whether they come for the first time."""
    seen = set[str]()

    def is_first(request: str) -> bool:
        if request in seen:
            return False
        seen.add(request)
        return True

    return is_first
