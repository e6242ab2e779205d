"""The rack of a machine is found where it is told first, within a second, and never guessed."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipelines.racks import resolver
from pipelines.racks.resolver import CLOUDS, WITHIN_S, main, resolve, service_variable

Answers = dict[tuple[str, str], Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], str]]]
Serve = Callable[[str, Answers], None]
NOBODY = "http://127.0.0.1:9"
SESSION = "AQAEAG=="


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """No metadata service but those that a test starts."""
    monkeypatch.delenv("NODE_RACK", raising=False)
    for cloud in CLOUDS:
        monkeypatch.setenv(service_variable(cloud), NOBODY)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a metadata service: `serve("AWS", {("GET", "/path"): answer})`."""
    servers = []

    def start(cloud: str, answers: Answers) -> None:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                path = self.path.partition("?")[0]
                asked = answers.get((self.command, path))
                status, headers, text = asked(self) if asked else (404, {}, "")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_PUT = answer  # noqa: N815 - the library's names

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        monkeypatch.setenv(service_variable(cloud), f"http://127.0.0.1:{server.server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def found(file: Path | None = None, aws: str = "zone-id") -> str:
    return resolve("NODE_RACK", str(file) if file else None, aws)[0]


def why(file: Path | None = None) -> str:
    rack, told = resolve("NODE_RACK", str(file) if file else None, "zone-id")
    assert rack == ""
    return "; ".join(told)


def aws(status: int = 200) -> Answers:
    def token(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], str]:
        assert int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
        return status, {}, SESSION

    def guarded(value: str) -> Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], str]]:
        return lambda request: (
            (200, {}, value) if request.headers["X-aws-ec2-metadata-token"] == SESSION else (401, {}, "")
        )

    place = "/latest/meta-data/placement/"
    return {
        ("PUT", "/latest/api/token"): token,
        ("GET", f"{place}availability-zone-id"): guarded("use1-az4"),
        ("GET", f"{place}availability-zone"): guarded("us-east-1a"),
    }


def gcp(text: str = "projects/123/zones/europe-west1-b", flavor: str = "Google") -> Answers:
    def zone(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], str]:
        if request.headers["Metadata-Flavor"] != "Google":
            return 403, {}, ""
        return 200, {"Metadata-Flavor": flavor}, text

    return {("GET", "/computeMetadata/v1/instance/zone"): zone}


def azure(text: str = '{"location": "westeurope", "zone": "2"}') -> Answers:
    def compute(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], str]:
        return (200, {}, text) if request.headers["Metadata"] == "true" else (400, {}, "")

    return {("GET", "/metadata/instance/compute"): compute}


def test_the_variable_comes_first_then_a_file_then_the_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    serve("AWS", aws())
    assert found() == "use1-az4"
    (tmp_path / "rack").write_text("row-7\n")
    assert found(tmp_path / "rack") == "row-7"
    monkeypatch.setenv("NODE_RACK", " by-hand ")
    assert found(tmp_path / "rack") == "by-hand"


@pytest.mark.parametrize("literal", ["${env:NODE_RACK}", "$(NODE_RACK)", "", "a;reboot", "`id`", "x" * 200])
def test_what_was_not_resolved_or_is_no_rack_is_passed_over(
    literal: str, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    monkeypatch.setenv("NODE_RACK", literal)
    assert found() == ""
    serve("GCP", gcp())
    assert found() == "europe-west1-b"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rack", "b"),
        ("zone", "b"),
        ("topology.kubernetes.io_zone", "b"),
        ("labels", 'app="x"\ntopology.kubernetes.io/zone="b"\n'),
        ("labels", 'topology.kubernetes.io/rack="b"'),
    ],
)
def test_a_folder_of_the_downward_api(name: str, text: str, tmp_path: Path) -> None:
    assert found(tmp_path) == ""
    (tmp_path / name).write_text(text)
    assert found(tmp_path) == "b"


def test_each_cloud_by_its_own_protocol(serve: Serve) -> None:
    serve("AZURE", azure())
    assert found() == "westeurope-2"
    serve("AZURE", azure('{"location": "westeurope", "zone": ""}'))
    assert "azure: the machine is in no zone" in why()
    serve("GCP", gcp())
    assert found() == "europe-west1-b"
    serve("GCP", {})
    serve("AWS", aws())
    assert found(aws="zone-name") == "us-east-1a"


def test_answers_of_others_and_refusals_are_no_racks(serve: Serve) -> None:
    serve("AWS", aws(status=403))
    assert "aws: HTTP 403" in why()
    page = "<html>Sign in to the network</html>"
    serve("AWS", {key: lambda _: (200, {}, page) for key in aws()})
    serve("GCP", gcp(page, flavor=""))
    serve("AZURE", azure(page))
    said = why()
    assert "aws: expected the name of a zone, got '<html>" in said
    assert "gcp: not the answer of GCP's metadata service" in said
    assert "azure: " in said


def test_a_service_that_does_not_answer_costs_a_second_in_all(serve: Serve) -> None:
    released = threading.Event()

    def never(_: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], str]:
        released.wait(30)
        return 200, {}, "late"

    for cloud, answers in (("AWS", aws()), ("GCP", gcp()), ("AZURE", azure())):
        serve(cloud, dict.fromkeys(answers, never))
    began = time.monotonic()
    said = why()
    took = time.monotonic() - began
    released.set()
    assert "aws: no answer in time" in said or "hop limit" in said
    # Bounded is what is promised, so it is what is measured; the margin is for a busy machine.
    assert took < WITHIN_S + 2


def test_a_shell_can_evaluate_it_and_nothing_found_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "no rack found, clients will read from leaders: $NODE_RACK: empty; file: not given" in err
    monkeypatch.setenv("NODE_RACK", "eu-1")
    assert main([]) == 0
    assert capsys.readouterr().out == "export NODE_RACK=eu-1\nexport SPARK_EXECUTOR_ATTRIBUTE_RACK=eu-1\n"
    assert main(["--plain", "--variable", "NODE_RACK"]) == 0
    assert capsys.readouterr().out == "eu-1\n"


def test_what_people_write_is_quoted_and_a_variable_has_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_RACK", "/dc 1/rack_7")
    assert main([]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "export NODE_RACK='/dc 1/rack_7'"
    with pytest.raises(SystemExit):
        main(["--variable", "x;touch pwned"])
    assert capsys.readouterr().out == ""


def test_odd_files_cost_no_more_than_a_second_and_stop_nothing(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert "file: expected the name of a rack" in why(tmp_path / "binary")
    (tmp_path / "labels").write_bytes(b'odd="\xff"\ntopology.kubernetes.io/zone="b"\n')
    assert found(tmp_path) == "b"
    os.mkfifo(tmp_path / "fifo")
    assert "is not a file" in why(tmp_path / "fifo")
    assert "is not a file" in why(Path("/dev/zero"))
    serve("GCP", gcp())
    assert found(tmp_path / "fifo") == "europe-west1-b"


def test_an_answer_that_was_cut_off_is_none(serve: Serve) -> None:
    def cut(_: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], str]:
        return 200, {"Content-Length": "500"}, "use1-az"

    serve("AWS", {**aws(), ("GET", "/latest/meta-data/placement/availability-zone-id"): cut})
    assert "aws: the answer was cut off" in why()


def test_it_needs_nothing_but_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_RACK", "eu-1")
    alone = tmp_path / "oncelake-rack.py"
    alone.write_text(Path(resolver.__file__).read_text())
    done = subprocess.run(
        [sys.executable, "-I", "-S", alone, "--plain"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "eu-1\n"
