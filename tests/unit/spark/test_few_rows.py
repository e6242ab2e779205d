"""How queries over few rows are planned."""

from pipelines.spark.few_rows import few_rows

ADAPTIVE = "spark.sql.adaptive.enabled"


def test_what_the_user_has_set_stays() -> None:
    settings, without = few_rows(()), few_rows({ADAPTIVE})
    assert settings.pop(ADAPTIVE) == "false"
    assert settings == without
