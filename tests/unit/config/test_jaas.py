"""A login of Kafka's client in Java is read as Kafka reads it."""

import pytest

from pipelines.config.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required username="me" password="a b;=\'";', {"username": "me", "password": "a b;='"}),
        (f"{PLAIN} Required\n  username=me\n  password='a\"b' ;", {"username": "me", "password": 'a"b'}),
        (f'{PLAIN} required password="=";', {"password": "="}),
        (f'{PLAIN} required password="";', {"password": ""}),
        (rf'{PLAIN} required password="a\"b\\c\t\101\x";', {"password": 'a"b\\c\tAx'}),
        (
            f'{PLAIN} required // who\n username="//no" /* and\nhow */ password=b;',
            {"username": "//no", "password": "b"},
        ),
        (f'{PLAIN} required ssl.truststore.type="PEM";', {"ssl.truststore.type": "PEM"}),
        (f'{PLAIN} required password="p" password="q";', {"password": "q"}),
    ],
)
def test_options_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    found = parse_jaas(text)
    assert (found.module, found.options) == ("PlainLoginModule", options)
    assert "password" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hush",
        f"{PLAIN} required",
        f"{PLAIN};",
        f"{PLAIN} hush;",
        f'{PLAIN} required password="hush"',
        f'{PLAIN} required password="hush;',
        f"{PLAIN} required password=hush=hush;",
        f"{PLAIN} required password=;",
        f"{PLAIN} required =hush;",
        f"{PLAIN} required password hush;",
        f'{PLAIN} required password="hu\nsh";',
        f"{PLAIN} required password=5hush;",
        f"{PLAIN} required; {PLAIN} required password=hush;",
    ],
)
def test_what_is_no_login_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ValueError, match="expected CLASS required") as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)
