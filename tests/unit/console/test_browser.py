"""A page in a browser renews itself, says when it cannot, and runs nothing that data brings."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from pipelines.console.site import Desk
from pipelines.console.view import LakeView, PipelineView
from pipelines.runtime.http_server import threading_server
from tests.support.consoles import lake_view, pipeline, troubled

BROWSER: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ACTS: Final = "<script>document.title='acted'</script><img src=x onerror=\"document.title='acted'\">"

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here"),
    pytest.mark.patient,
]


def seen(view: Callable[[], LakeView | None], path: str, folder: Path) -> str:
    """What is on a page after ten seconds of the browser's own clock."""
    assert BROWSER
    desk = Desk(view, 1.0, folder, frozenset({"127.0.0.1"}))
    server = threading_server("127.0.0.1", 0, desk.answer)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser")
    address = f"http://127.0.0.1:{server.server_port}{path}"
    try:
        done = subprocess.run(
            [BROWSER, *flags, "--virtual-time-budget=10000", "--dump-dom", address],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    finally:
        server.shutdown()
        server.server_close()
    return done.stdout


class Changing:
    """Views that change: what is refused names how many requests there were."""

    def __init__(self) -> None:
        self.asked = 0

    def view(self) -> LakeView:
        self.asked += 1
        worse = PipelineView(f"p{self.asked % 3}", f"request {self.asked} {ACTS}")
        return lake_view(*sorted([worse, pipeline("m")], key=lambda each: each.name))

    def failing(self) -> LakeView:
        if self.asked:
            raise ZeroDivisionError
        return self.view()


def test_a_page_shows_what_is_new_and_texts_of_data_do_nothing(tmp_path: Path) -> None:
    changing = Changing()
    dom = seen(changing.view, "/", tmp_path)
    assert changing.asked > 2
    assert f"request {changing.asked} &lt;script&gt;" in dom
    assert dom.count("request ") == 1
    assert "<title>1 problem, " in dom
    assert "acted</title>" not in dom
    assert 'id="unreachable" class="alarm" role="alert" hidden' in dom


def test_a_page_whose_console_fails_says_that_it_is_old(tmp_path: Path) -> None:
    dom = seen(Changing().failing, "/", tmp_path)
    assert "request 1" in dom
    assert 'id="unreachable" class="alarm" role="alert">' in dom


def test_a_page_that_is_told_to_stay_as_it_is_does(tmp_path: Path) -> None:
    changing = Changing()
    dom = seen(changing.view, "/?refresh=off", tmp_path)
    assert (changing.asked, "request 1" in dom) == (1, True)


def test_a_page_of_a_pipeline_with_poison_everywhere_is_whole(tmp_path: Path) -> None:
    one = replace(troubled(), name=ACTS.replace("/", ""))
    dom = seen(lambda: lake_view(one), f"/pipelines/{'%3Cscript%3E'}", tmp_path)
    assert "no such page" in dom
    dom = seen(lambda: lake_view(replace(one, name="orders")), "/pipelines/orders.html", tmp_path)
    assert '<h1 id="top">orders</h1>' in dom
    assert dom.rstrip().endswith("</html>")
    assert dom.count("<script") == 1
    assert "<img" not in dom
