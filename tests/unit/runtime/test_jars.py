import hashlib
import os
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.errors import ConfigError, InfrastructureError
from pipelines.runtime import ivy, jars
from pipelines.runtime.ivy import write_truststore
from pipelines.runtime.jars import USES, ensure_jars, jar_state, locked_jars
from pipelines.runtime.java import Java
from testbed.waiting import wait_until

CONTENT = {"a-1.jar": b"first", "b-2.jar": b"second"}


class Repository:
    """Stands for Ivy and the network: serves CONTENT, or what a test puts there."""

    def __init__(self) -> None:
        self.serves = dict(CONTENT)
        self.asked = 0

    def retrieve(self, use: str, folder: Path, total: int | None) -> None:
        self.asked += 1
        (folder / use).mkdir()
        for name, content in self.serves.items():
            (folder / use / name).write_bytes(content)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock that asks for CONTENT, and an empty home."""
    path = tmp_path / "jars.lock"
    path.write_text("".join(f"{hashlib.sha256(c).hexdigest()}  spark  {n}\n" for n, c in CONTENT.items()))
    monkeypatch.setattr(jars, "resource", lambda name: path)
    monkeypatch.setenv("ONCELAKE_HOME", str(tmp_path / "home"))
    return path


@pytest.fixture
def repository(lock: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    serving = Repository()
    monkeypatch.setattr(jars, "retrieve", serving.retrieve)
    return serving


def test_jars_are_fetched_once_and_given_in_the_order_of_the_lock(repository: Repository) -> None:
    first = ensure_jars("spark")
    assert [(path.name, path.read_bytes()) for path in first] == list(CONTENT.items())
    assert ensure_jars("spark") == first
    assert repository.asked == 1


def test_nothing_but_the_jars_is_left_behind(repository: Repository, tmp_path: Path) -> None:
    ensure_jars("spark")
    left = {path.name for path in (tmp_path / "home" / "jars").rglob("*") if path.is_file()}
    assert left == {*CONTENT, ".lock", ".verified.json"}


def test_the_bytes_of_jars_are_compared_whatever_was_seen_of_them(repository: Repository) -> None:
    assert jar_state("spark") == jars.JarState(("a-1.jar", "b-2.jar"), ())
    first, second = ensure_jars("spark")
    assert jar_state("spark") == jars.JarState((), ())
    seen = first.stat()
    # Of the same size and time, so that what was noted of it still holds.
    first.write_bytes(b"FIRST")
    os.utime(first, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    second.unlink()
    assert jar_state("spark") == jars.JarState(("b-2.jar",), ("a-1.jar",))
    assert repository.asked == 1


def test_a_corrupt_download_is_refused_and_not_kept(repository: Repository, tmp_path: Path) -> None:
    repository.serves["b-2.jar"] = b"tampered"
    with pytest.raises(InfrastructureError) as refused:
        ensure_jars("spark")
    message = str(refused.value)
    for part in ("b-2.jar", hashlib.sha256(b"second").hexdigest(), hashlib.sha256(b"tampered").hexdigest()):
        assert part in message
    assert "not kept" in message
    assert not list((tmp_path / "home").rglob("b-2.jar"))
    repository.serves = dict(CONTENT)
    assert len(ensure_jars("spark")) == len(CONTENT), "the next try succeeds"


def test_a_jar_damaged_on_disk_is_found_and_fetched_again(repository: Repository) -> None:
    damaged = ensure_jars("spark")[0]
    damaged.write_bytes(b"first, but longer")
    assert ensure_jars("spark")[0].read_bytes() == b"first"
    assert repository.asked == 2


def test_a_changed_lock_is_noticed_although_the_files_did_not_change(
    repository: Repository, lock: Path
) -> None:
    ensure_jars("spark")
    lock.write_text(lock.read_text().replace(hashlib.sha256(b"first").hexdigest(), "0" * 64))
    with pytest.raises(InfrastructureError, match=r"a-1\.jar.*expected SHA-256 0{64}"):
        ensure_jars("spark")


def test_a_lock_that_does_not_agree_with_ivy_says_so(repository: Repository) -> None:
    del repository.serves["a-1.jar"]
    with pytest.raises(InfrastructureError, match=r"a-1\.jar is in .* the two do not match"):
        ensure_jars("spark")


def test_two_at_once_fetch_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(use: str, folder: Path, total: int | None) -> None:
        inside.set()
        assert go_on.wait(20)
        repository.retrieve(use, folder, total)

    monkeypatch.setattr(jars, "retrieve", slow)
    got: list[list[Path]] = []
    both = [threading.Thread(target=lambda: got.append(ensure_jars("spark"))) for _ in range(2)]
    both[0].start()
    assert inside.wait(20)
    both[1].start()
    wait_until(lambda: "waiting for it" in caplog.text, "the second says that it waits", 20)
    go_on.set()
    for thread in both:
        thread.join(20)
    assert got[0] == got[1]
    assert repository.asked == 1


def test_a_home_that_cannot_be_written_is_refused_in_words(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ONCELAKE_HOME", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match=r"cannot be created.*Name another one in \$ONCELAKE_HOME"):
        ensure_jars("spark")


@pytest.mark.parametrize("line", ["abc spark a.jar", f"{'0' * 64} a.jar", f"{'0' * 64} kitchen a.jar"])
def test_a_line_of_the_lock_that_cannot_be_read_is_quoted(lock: Path, line: str) -> None:
    lock.write_text(f"# a comment\n{line}\n")
    with pytest.raises(InfrastructureError, match=r"jars\.lock, line 2: expected .*a\.jar"):
        locked_jars("spark")


def test_the_locks_of_this_release_name_each_jar_once() -> None:
    for use in USES:
        names = [jar.name for jar in locked_jars(use)]
        assert len(names) == len(set(names)) > 0


FailingJava = Callable[[str], Path]


@pytest.fixture
def java_saying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingJava:
    """A Java that writes down its arguments, runs shell commands and ends."""

    def make(commands: str) -> Path:
        program = tmp_path / "jdk" / "bin" / "java"
        program.parent.mkdir(parents=True)
        arguments = tmp_path / "arguments"
        program.write_text(f'#!/bin/sh\necho "$@" >> {arguments}\n{commands}\n')
        program.chmod(0o755)
        monkeypatch.setattr(ivy, "find_java", lambda: Java(tmp_path / "jdk", 17, "test"))
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
        return arguments

    return make


def test_ivy_is_asked_three_times_and_then_quoted(java_saying: FailingJava, tmp_path: Path) -> None:
    arguments = java_saying("echo ':: module not found: some#jar;1'; exit 1")
    with pytest.raises(InfrastructureError, match=r"module not found: some#jar;1.*ONCELAKE_IVY_SETTINGS"):
        ivy.retrieve("spark", tmp_path, total=None)
    assert len(arguments.read_text().splitlines()) == 3


def test_one_failure_of_the_network_is_survived(java_saying: FailingJava, tmp_path: Path) -> None:
    arguments = java_saying(f"[ $(wc -l < {tmp_path / 'arguments'}) -ge 2 ]")
    ivy.retrieve("spark", tmp_path, total=None)
    assert len(arguments.read_text().splitlines()) == 2


def test_a_mirror_is_used_by_the_users_own_ivy_settings(
    java_saying: FailingJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "mirror.xml"
    settings.touch()
    monkeypatch.setenv("ONCELAKE_IVY_SETTINGS", str(settings))
    arguments = java_saying("exit 0")
    ivy.retrieve("spark", tmp_path, total=None)
    assert f"-settings {settings}" in arguments.read_text()


def test_ivy_settings_that_are_not_there_are_refused(
    java_saying: FailingJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_saying("exit 0")
    monkeypatch.setenv("ONCELAKE_IVY_SETTINGS", str(tmp_path / "nothing.xml"))
    with pytest.raises(ConfigError, match=r"nothing\.xml', which is not a file"):
        ivy.retrieve("spark", tmp_path, total=None)


def test_java_gets_every_authority_that_python_trusts(tmp_path: Path) -> None:
    store = tmp_path / "authorities.jks"
    options = write_truststore(store)
    assert options[0].endswith(str(store))
    content = store.read_bytes()
    magic, version, count = struct.unpack_from(">III", content)
    assert (magic, version) == (0xFEEDFEED, 2)
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    assert count >= len(authorities) > 0
    assert all(certificate in content for certificate in authorities)


def test_a_machine_without_authorities_leaves_java_to_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert write_truststore(tmp_path / "authorities.jks") == []
    assert not (tmp_path / "authorities.jks").exists()
