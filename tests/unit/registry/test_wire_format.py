"""Values in the wire format: the id of the schema is text in code, and four bytes before the payload."""

from pipelines.registry.confluent import CONFLUENT


def test_an_id_is_framed_as_four_bytes_behind_a_zero() -> None:
    assert CONFLUENT.header("7") == b"\x00\x00\x00\x00\x07"
    assert CONFLUENT.header(str(0xFFFFFFFF)) == b"\x00\xff\xff\xff\xff"
