"""What is not in a file of configuration comes from elsewhere, and is never shown."""

import sys
from pathlib import Path

import pytest

from pipelines.config.loader import load_config
from pipelines.config.references import references_in, resolved, variables_in
from pipelines.errors import ConfigError

WHERE = "conf/prod/oncelake.yml: kafka.secrets.sasl.jaas.config"
PIPELINE = "contract: flights.odcs.yaml\nkafka: {topic: flights}\nspeed: {watermark_delay: 6 hours}\n"
LOCAL = "lake: {root: .lake}\n"


def prints(program: str) -> str:
    return f"${{command:{sys.executable} -c '{program}'}}"


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        resolved(text, WHERE, {"NAME": "hush"})
    assert str(refused.value).startswith(f"{WHERE}: ")
    assert "hush" not in str(refused.value)
    return str(refused.value)


def test_a_reference_stands_for_a_variable_a_file_or_what_a_program_prints(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("${NAME} in a file\r\n")
    text = f"a ${{NAME}} b ${{file:{tmp_path}/password}} c {prints('print(chr(104) + chr(117))')}"
    # What a reference stands for is not looked at again.
    assert resolved(text, WHERE, {"NAME": "x"}) == "a x b ${NAME} in a file c hu"
    assert variables_in(text) == ["NAME"]
    assert [reference.partition(":")[0] for reference in references_in(text)] == ["NAME", "file", "command"]


def test_a_configuration_can_be_checked_where_its_files_and_programs_are_not() -> None:
    text = "${NAME} ${file:/no/such} ${command:no-such}"
    stand_ins = dict.fromkeys(references_in(text), "stand-in")
    assert resolved(text, WHERE, stand_ins) == "stand-in stand-in stand-in"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${OTHER}", "the environment variable OTHER is not set"),
        ("${file:secrets/kafka}", "expected the whole path of a file"),
        ("${file:/no/such/file}", "the file /no/such/file cannot be read: No such file"),
        ("${command:/no/such/program --token=hush}", "the command /no/such/program cannot be started"),
        ("${command:'x}", "with closed quotes"),
        ("${NAME ${NAME}", "got another ${"),
        ("${vault:path:key}", "got another ${"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_file_or_a_program_that_gives_nothing_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"hush\xff")
    assert "is empty" in refusal(f"${{file:{tmp_path}/empty}}")
    assert "is not text in UTF-8" in refusal(f"${{file:{tmp_path}/bytes}}")
    assert "prints nothing" in refusal(prints("pass"))
    assert "ends with exit code 3; expected 0" in refusal(prints('print("hush"); exit(3)'))


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "base/pipelines").mkdir(parents=True)
    (tmp_path / "base/pipelines/flights.yml").write_text(PIPELINE)
    (tmp_path / "local").mkdir()
    return tmp_path


def load(conf: Path, text: str, **environ: str) -> None:
    (conf / "local/oncelake.yml").write_text(LOCAL + text)
    load_config("flights", conf_dir=conf, environ={"KAFKA_BOOTSTRAP_SERVERS": "b:1", **environ})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("kafka: {secrets: {ssl.key.password: hush}}", "kafka.secrets.ssl.key.password"),
        (
            'kafka: {secrets: {sasl.jaas.config: \'x required username="${NAME}" password="hush";\'}}',
            "kafka.secrets.sasl.jaas.config",
        ),
        ("publish: {topic: out, secrets: {sasl.password: hush}}", "publish.secrets.sasl.password"),
        ("registry: {url: 'http://r', secrets: {basic.auth.user.info: 'a:hush'}}", "registry.secrets.basic"),
        ("notify: {headers: {Authorization: Bearer hush}}", "notify.headers.Authorization"),
        ("notify: {headers: {X-Api-Key: hush}}", "notify.headers.X-Api-Key"),
        (
            "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hush}}",
            "spark.conf.spark.hadoop.fs.s3a.secret.key",
        ),
        ("spark: {conf: {spark.hadoop.fs.azure.account.key.a.b: hush}}", "spark.conf.spark.hadoop.fs.azure"),
        ("spark: {conf: {spark.hadoop.fs.azure.sas.a.b: hush}}", "spark.conf.spark.hadoop.fs.azure"),
        (
            "spark: {conf: {spark.hadoop.fs.s3a.encryption.key: hush}}",
            "spark.conf.spark.hadoop.fs.s3a.encryption.key",
        ),
        (
            "spark: {conf: {spark.driver.extraJavaOptions: '-Dx.keyPassword=hush -Xss4m'}}",
            "spark.conf.spark.driver",
        ),
    ],
)
def test_a_secret_in_plain_text_in_a_file_is_refused_and_not_shown(conf: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(conf, text, NAME="x")
    message = str(refused.value)
    assert f"{conf}/local/oncelake.yml: {key}" in message
    assert "expected an environment variable, ${NAME}, a file, ${file:/PATH}, or a command" in message
    assert "hush" not in message


@pytest.mark.parametrize(
    "text",
    [
        'kafka: {secrets: {sasl.jaas.config: \'x required username="me" password="${NAME}";\'}}',
        "notify: {webhook: 'https://hooks.example.internal/x', headers: {Accept-Language: en}}",
        "spark: {conf: {spark.hadoop.fs.s3a.aws.credentials.provider: org.example.Provider}}",
        "spark: {conf: {spark.hadoop.hadoop.security.credential.provider.path: 'jceks://file/x'}}",
        "spark: {conf: {spark.driver.extraJavaOptions: '-Dx.keyPassword=${NAME} -Dx.keyStore=/etc/x'}}",
    ],
)
def test_what_is_no_secret_or_stands_for_one_is_taken(conf: Path, text: str) -> None:
    load(conf, text, NAME="x")
