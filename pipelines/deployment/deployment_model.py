"""What is known of a pipeline when its deployment files are written: no value of an environment variable."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

import yaml

from pipelines.config.loader import load_config, raw_settings, read_yaml
from pipelines.config.model import PipelineConfig
from pipelines.config.references import references_in, variables_in
from pipelines.config.setting_kinds import has_form, holds_secret
from pipelines.config.streams import STREAMS, Query, Stream, port_offset
from pipelines.config.values import Form, looks_secret
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.formats.contract_files import load_contract
from pipelines.text_files import LARGEST_JSON, read_text, why_unreadable

# Stands for the value of a variable where the form of a setting is checked; nothing can have this name.
_UNKNOWN: Final = "variable.invalid"
# A longer one with one hyphen may have its value behind the letter.
_OPTION_NAME: Final = re.compile(r"-[A-Za-z]|--[A-Za-z][A-Za-z-]*")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
_SHORTEST_PAUSE: Final = timedelta(hours=1)
_STEP: Final = timedelta(minutes=30)
_HALF_A_DAY: Final = timedelta(hours=12)
# Kubernetes allows 63 characters, and adds up to eleven to the names of what a CronJob makes.
_LONGEST_SLUG: Final = 30


@dataclass(frozen=True)
class StreamProcess:
    """A process that runs a stream: of ingest there is one for each cluster.

    Attributes:
        stream: The stream.
        cluster: The cluster that it reads, by its name; None for the first, or for all of them.
        port: What is added to `metrics.port`.
    """

    stream: Stream
    cluster: str | None
    port: int

    @property
    def job(self) -> str:
        """The job."""
        return self.stream.job

    @property
    def part(self) -> str:
        """What it is of the pipeline, in a word: `ingest`, or `ingest-CLUSTER`."""
        part = self.job.removesuffix("_stream")
        return f"{part}-{self.cluster}" if self.cluster else part

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the job that name the cluster."""
        return ("--cluster", self.cluster) if self.cluster else ()


@dataclass(frozen=True)
class PipelineDeployment:
    """A pipeline, as its files describe it.

    Attributes:
        config: Its configuration. Where a file names a variable there is a stand-in, which is never written.
        contract: Its contract.
        raw: Its settings by their dotted keys, as they are in the files.
        files: The files that a job of it reads, by their paths below the project's folder; of YAML files
            their values alone.
    """

    config: PipelineConfig
    contract: DataContract
    raw: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that a job of it needs, sorted."""
        return tuple(sorted({name for text in self.raw.values() for name in variables_in(text)}))

    @property
    def slug(self) -> str:
        """Its name as Kubernetes allows names; two pipelines never have the same."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.config.name.lower()).strip("-")
        if slug == self.config.name and len(slug) <= _LONGEST_SLUG:
            return slug
        return f"{slug[: _LONGEST_SLUG - 7].rstrip('-')}-{sha256(self.config.name.encode()).hexdigest()[:6]}"

    @property
    def processes(self) -> tuple[StreamProcess, ...]:
        """The processes of its streams, in the order of the data: of ingest one for each cluster."""
        return tuple(each for query in self.config.streams for each in self._processes(query))

    @property
    def asked(self) -> tuple[PipelineConfig, ...]:
        """The configuration of the source of each cluster that is not retired, the first cluster's first."""
        return tuple(each for each in self.config.sources() if not each.kafka.retired)

    def _processes(self, query: Query) -> Iterator[StreamProcess]:
        stream = STREAMS[query]
        if query != "ingest":
            yield StreamProcess(stream, None, port_offset(stream, 0))
            return
        for source in self.asked:
            number = source.kafka.number
            yield StreamProcess(stream, source.cluster, port_offset(stream, number))

    @property
    def nightly_at(self) -> timedelta:
        """When its night begins, after midnight of its contract's time zone: the day is over and sealed."""
        return -(-(self.config.batch.seal_grace + _SHORTEST_PAUSE) // _STEP) * _STEP

    @property
    def maintain_at(self) -> timedelta:
        """When it is maintained, likewise; not at the time of the night, which needs the same lease."""
        return self.nightly_at + _HALF_A_DAY

    def variable(self, key: str) -> str | None:
        """Return the variable that a setting is, as a whole; None if it names none.

        Raises:
            ConfigError: A variable is a part of the setting, which those who read the files cannot replace.
        """
        text = self.raw.get(key, "")
        names = variables_in(text)
        if names and text != f"${{{names[0]}}}":
            raise ConfigError(
                f"{key}: expected text without variables, or one variable as a whole, got {text!r}; set the"
                " variable to the whole value"
            )
        return names[0] if names else None

    def require_known(self, *keys: str) -> None:
        """Make sure that settings which decide what is written are in the files themselves.

        Raises:
            ConfigError: One of them is in an environment variable.
        """
        for key in keys:
            if names := variables_in(self.raw.get(key, "")):
                raise ConfigError(
                    f"{key}: expected a value, got the environment variable {names[0]}, which is not read"
                    " here but decides what is written; write the value itself"
                )

    def spark_setting(self, name: str) -> str | None:
        """Return a setting of `spark.conf`; None if there is none.

        Raises:
            ConfigError: It is in an environment variable.
        """
        self.require_known(f"spark.conf.{name}")
        return self.config.spark.conf.get(name)

    def spark_number(self, name: str) -> int | None:
        """Return a number of `spark.conf`; None if there is none.

        Raises:
            ConfigError: It is in an environment variable, or no number.
        """
        text = self.spark_setting(name)
        if text is not None and not _NUMBER.fullmatch(text):
            raise ConfigError(f"spark.conf.{name}: expected a number, got {text!r}")
        return None if text is None else int(text)

    @property
    def may_be_on_s3(self) -> bool:
        """Whether the lake is on S3, or is where a variable says."""
        return self.raw.get("lake.root", "").lower().startswith(("s3", "${"))

    def digest(self) -> str:
        """Return what changes when one of its files does."""
        text = "\0".join(f"{path}\0{self.files[path]}" for path in sorted(self.files))
        return sha256(text.encode()).hexdigest()[:16]


def load_deployment(name: str, *, env: str, conf_dir: Path, contracts_dir: Path) -> PipelineDeployment:
    """Read and check what is said of a pipeline, without the environment of this process.

    Args:
        name: The pipeline.
        env: The environment, a folder of `conf_dir`.
        conf_dir: The folder of configuration.
        contracts_dir: The folder of contracts.

    Raises:
        ConfigError: The configuration is refused, or has a secret in a file.
        ContractError: The contract is refused.
    """
    if not _PLAIN.fullmatch(env):
        raise ConfigError(f"--env {env}: expected letters, digits, '.', '_' and '-'; rename the folder")
    read = raw_settings(name, env=env, conf_dir=conf_dir)
    raw = read.merged
    stand_ins = {
        reference: _stand_in(key, reference) for key, text in raw.items() for reference in references_in(text)
    }
    try:
        config = load_config(name, env=env, conf_dir=conf_dir, environ=stand_ins)
    except ConfigError as error:
        if _UNKNOWN in str(error):
            raise ConfigError(
                f"{error}; variables are not read here, and {_UNKNOWN} stands for one: write the value itself"
            ) from None
        raise
    _refuse_secrets(read.files, {name, env})
    contract = load_contract(contracts_dir / config.contract)
    files = dict(_files(name, env, conf_dir)) | {
        f"data_contracts/{config.contract}": _values(contracts_dir / config.contract)
    }
    return PipelineDeployment(config, contract, raw, files)


def _stand_in(key: str, reference: str) -> str:
    """Return what stands for a reference in a setting; addresses of clusters may not be the same."""
    if key.endswith("bootstrap_servers"):
        return f"x{sha256(reference.encode()).hexdigest()[:8]}.{_UNKNOWN}:9092"
    return f"https://{_UNKNOWN}" if has_form(key, Form.URL) else _UNKNOWN


def _refuse_secrets(files: Mapping[str, Mapping[str, str]], known: Collection[str]) -> None:
    """Refuse secrets in files; words that are known stand in the names of files anyway."""
    for path, settings in files.items():
        for key, text in settings.items():
            if has_form(key, Form.PROGRAM) and not _is_command_without_secrets(text, known):
                raise ConfigError(
                    f"{path}: {key}: expected behind the program names of options, such as -H, and"
                    " environment variables, ${NAME}, each a whole item; got other text, which may be a"
                    " secret and would be in the files that are written; set a variable to the whole"
                    " item where the job runs, or name a script that calls the program"
                )
            if _shows_secret(key, text):
                raise ConfigError(
                    f"{path}: {key}: expected an environment variable, ${{NAME}}, or a file,"
                    " ${file:/PATH}, as the whole value, got other text, which would be in the files that are"
                    " written; set the variable to the whole value where the job runs"
                )


def _is_command_without_secrets(text: str, known: Collection[str]) -> bool:
    _, *items = text.split("\n")
    return all(item in known or _OPTION_NAME.fullmatch(item) or _is_variable(item) for item in items)


def _shows_secret(key: str, text: str) -> bool:
    """Return whether a setting has a secret, or a part of one, in its text."""
    if holds_secret(key):
        return not _is_variable(text)
    if not key.startswith("spark.conf."):
        return False
    # Options of Java are settings within a setting.
    assigned = (word.partition("=") for word in text.split() if "=" in word)
    secrets = [value for name, _, value in assigned if looks_secret(name)]
    return not all(map(_is_variable, [text, *secrets] if looks_secret(key) else secrets))


def _is_variable(text: str) -> bool:
    """Return whether a text is a variable or a file as a whole; arguments of a command may be secrets."""
    references = references_in(text)
    return text in (f"${{{each}}}" for each in references) and not references[0].startswith("command:")


def _files(name: str, env: str, conf_dir: Path) -> Iterator[tuple[str, str]]:
    suites = conf_dir / "base/gx"
    candidates = [
        *(
            conf_dir / folder / file
            for folder in ("base", env)
            for file in ("oncelake.yml", f"pipelines/{name}.yml")
        ),
        suites / "great_expectations.yml",
        *sorted((suites / "expectations" / name).glob("*.json")),
    ]
    for path in candidates:
        if path.is_file():
            yield f"conf/{path.relative_to(conf_dir).as_posix()}", _values(path)
    if not any((conf_dir / env / file).is_file() for file in ("oncelake.yml", f"pipelines/{name}.yml")):
        # The folder says that there is such an environment.
        yield f"conf/{env}/oncelake.yml", ""


def _values(path: Path) -> str:
    """Return a file that says the same without comments, which may hold what is in no setting."""
    if path.suffix == ".json":
        return _text(path)
    # Nothing is folded, so that a text is found as it is written.
    return yaml.safe_dump(read_yaml(path), sort_keys=False, allow_unicode=True, width=1 << 20)


def _text(path: Path) -> str:
    try:
        return read_text(path, LARGEST_JSON)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {why_unreadable(error)}") from None
