"""The broker's files name the folder that was meant."""

from pathlib import Path

import pytest

from pipelines.runtime.local_broker import server_properties


@pytest.mark.parametrize(
    ("folder", "written"),
    [
        ("/srv/plain folder", "/srv/plain folder/data"),
        ("/srv/bröker", "/srv/br\\u00f6ker/data"),
        ("/srv/a\\b", "/srv/a\\\\b/data"),
        ("/srv/😀", "/srv/\\ud83d\\ude00/data"),
    ],
)
def test_a_folder_is_written_as_java_reads_it(folder: str, written: str) -> None:
    assert f"\nlog.dirs={written}\n" in server_properties(Path(folder), 1, 2)
