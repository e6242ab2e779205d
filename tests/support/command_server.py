"""The program of `tests.support.command_process`, which needs nothing of the checkout.

python command_server.py serve SOCKET                      # runs commands until it is killed
python command_server.py ask SOCKET oncelake plan ...      # has it run one, and ends as that does
python command_server.py ask SOCKET python - < PROGRAM     # the same with a program
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final

_SIGNALS: Final[dict[signal.Signals, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
_LONGEST: Final = 1 << 17
_KILLED: Final = 137


def _serve(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        # Whoever finds the socket finds somebody who listens.
        listening.bind(f"{path}.new")
        listening.listen()
        Path(f"{path}.new").rename(path)
        while True:
            connection, _ = listening.accept()
            with connection:
                asked, output, _, _ = socket.recv_fds(connection, _LONGEST, 2)
                connection.sendall(str(_run(json.loads(asked), output)).encode())


def _run(asked: dict[str, Any], output: Sequence[int]) -> int:
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    try:
        # Java inherits the files of the process, and would keep those of a command open.
        with ExitStack() as stack:
            out, errors = (stack.enter_context(os.fdopen(each, "w")) for each in output)
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(errors))
            return _outcome(asked["arguments"], asked["program"])
    finally:
        for number, handler in _SIGNALS.items():
            signal.signal(number, handler)


def _outcome(arguments: Sequence[str], program: str) -> int:
    from pipelines.cli import main
    from pipelines.spark.session import stop_session

    try:
        if arguments[0] == "oncelake":
            main(arguments[1:])
        else:
            exec(program, {"__name__": "__main__"})  # noqa: S102 - the tests' own
            stop_session()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _ask(path: str, arguments: Sequence[str]) -> int:
    request = {
        "arguments": arguments,
        "program": sys.stdin.read() if arguments[0] == "python" else "",
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], [1, 2])
        code = b""
        with suppress(ConnectionResetError):
            code = connection.recv(16)
    return int(code) if code else _KILLED


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2])
    else:
        sys.exit(_ask(sys.argv[2], sys.argv[3:]))
