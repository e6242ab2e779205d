"""Messages of libraries do not repeat secrets."""

import pytest

from pipelines.config.secret_masking import mask_values

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me too" password="hu\'sh";'


@pytest.mark.parametrize(
    ("text", "secrets", "shown"),
    [
        (
            "Invalid login module control flag 'hush' in JAAS config",
            ["alice hush;"],
            "control flag '******' in",
        ),
        (
            "No LoginModule found for org.apache.kafka.common.security.plain.PlainLoginModule",
            [JAAS],
            "PlainLogin",
        ),
        ('cannot read password="hu', [JAAS], 'cannot read password="hu'),
        (f"cannot read {JAAS}", [JAAS], "cannot read ******"),
        ("Illegal header value b'Bearer hush-hush'", ["hush", "hush-hush"], "b'Bearer ******'"),
        ("nothing of it", ["", "no", "hush"], "nothing of it"),
    ],
)
def test_a_word_of_a_secret_is_hidden_and_what_helps_is_not(
    text: str, secrets: list[str], shown: str
) -> None:
    said = mask_values(text, secrets)
    assert shown in said
    assert "hush" not in said
