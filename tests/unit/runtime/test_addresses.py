"""What messages say of an address."""

import pytest

from pipelines.runtime.addresses import mask_addresses


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("passed https://me:hush@host:1/x?key=hush. Why", "passed https://…host:1/x… Why"),
        ("passed me:hush@host", "passed …host"),
        ("url: /v1?key=hush (refused)", "url: /v1… (refused)"),
        ("http://127.0.0.1:4318/v1/metrics", "http://127.0.0.1:4318/v1/metrics"),
    ],
)
def test_users_passwords_and_queries_are_not_told(text: str, told: str) -> None:
    assert mask_addresses(text) == told
