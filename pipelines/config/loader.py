"""Reads a pipeline's configuration: base, then the environment, then the command line.

Later layers win, key by key:

1. `CONF_DIR/base/oncelake.yml`, 2. `CONF_DIR/base/pipelines/NAME.yml`,
3. `CONF_DIR/ENV/oncelake.yml`, 4. `CONF_DIR/ENV/pipelines/NAME.yml`,
5. the environment variable `KAFKA_BOOTSTRAP_SERVERS`, 6. `--set key=value`.

`${NAME}` in a text stands for an environment variable, `${file:/PATH}` for what a file holds and
`${command:PROGRAM ARGUMENTS}` for what a program prints, so that no secret is in a file of configuration: one
in plain text is refused there.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from pydantic import SecretStr, TypeAdapter, ValidationError

from pipelines.config.model import PipelineConfig
from pipelines.config.references import EXPECTED, plain_secrets, require_text, resolved
from pipelines.config.setting_kinds import has_form, holds_secret, parts_of
from pipelines.config.values import Form, PipelineName, carries_login
from pipelines.errors import ConfigError
from pipelines.model_errors import RefusedValue, refused_values
from pipelines.text_files import LARGEST_YAML, read_text, why_unreadable
from pipelines.yaml import parse_yaml

# What others call such files; of two beside each other nobody would see that one is not read.
_OTHER_ENDING: Final = ".yaml"
# In the file of all pipelines each of them would get it.
_OF_ONE_PIPELINE: Final = (("kafka", "topic"), ("speed", "watermark_delay"))
_SERVERS: Final = "KAFKA_BOOTSTRAP_SERVERS"
_LONGEST_SHOWN: Final = 100
_NAME: Final = TypeAdapter[str](PipelineName)
_CLUSTERS: Final = ("kafka", "clusters")
# By the names of settings; a path or a class of credentials is none.
_SECRET_SETTING: Final = re.compile(
    r"(secret|password|passphrase|token|(access|secret|private|encryption)[._-]?key)$|\.account\.key\."
    r"|\.client\.secret\.|\.azure\.sas\.",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Source:
    origin: str
    values: dict[str, Any]


def load_config(
    name: str,
    *,
    env: str = "local",
    conf_dir: Path = Path("conf"),
    settings: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> PipelineConfig:
    """Merge and check the configuration of one pipeline.

    Args:
        name: The pipeline's name, that of its file in `conf_dir/base/pipelines`.
        env: The environment, a folder of `conf_dir`.
        conf_dir: The folder of configuration.
        settings: `key=value` pairs of the command line; keys have dots, values are YAML.
        environ: The environment's variables.

    Returns:
        The checked configuration.

    Raises:
        ConfigError: Something is missing, unknown or of the wrong form. The message names the file.
    """
    files = list(_files(name, env, conf_dir))
    layers = [*files, *_environment(environ), *_settings(settings)]
    if misshapen := [line for layer in layers for line in _misshapen(layer.values, PipelineConfig, layer)]:
        raise ConfigError("\n".join(misshapen))
    if plain := [line for layer in files for line in _plain_secrets(layer)]:
        raise ConfigError("\n".join(plain))
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer.values)
    merged = _expand(merged, (), layers, environ)
    for key, words in (
        ("name", "the file name is the name"),
        ("env", "--env sets the environment"),
    ):
        if key in merged:
            raise ConfigError(f"{_origin(layers, (key,))}: {key}: {words}; remove this key")
    try:
        return PipelineConfig.model_validate(document := {**merged, "name": name, "env": env})
    except ValidationError as error:
        refused = refused_values(error, document)
        raise ConfigError("\n".join(_explain(each, layers) for each in refused)) from None


@dataclass(frozen=True)
class RawSettings:
    """What the files of a pipeline say, with names of variables and not with their values.

    Attributes:
        merged: The texts that hold, by their dotted keys; of a list, its texts on lines.
        files: The same for each file, by its path.
    """

    merged: Mapping[str, str]
    files: Mapping[str, Mapping[str, str]]


def raw_settings(name: str, *, env: str, conf_dir: Path) -> RawSettings:
    """Read the files of a pipeline as they are.

    Args:
        name: The pipeline's name.
        env: The environment, a folder of `conf_dir`.
        conf_dir: The folder of configuration.

    Raises:
        ConfigError: A file cannot be read, or there is no such pipeline or environment.
    """
    merged: dict[str, Any] = {}
    files = dict[str, Mapping[str, str]]()
    for layer in _files(name, env, conf_dir):
        files[layer.origin] = dict(_flat(layer.values))
        _merge(merged, layer.values)
    return RawSettings(dict(_flat(merged)), files)


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for part, inner in value.items():
            yield from _flat(inner, f"{key}.{part}" if key else str(part))
    else:
        yield key, "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain_secrets(layer: _Source) -> Iterator[str]:
    """Yield the settings of a file that have a secret in plain text."""
    for key, text in _flat(layer.values):
        if key.startswith("spark.conf."):
            is_secret = bool(_SECRET_SETTING.search(key))
        elif has_form(key, Form.HEADERS):
            is_secret = carries_login(key)
        elif holds_secret(key) and not has_form(key, Form.URL):
            # Of URLs of this kind not all hold a secret, and which do nobody can tell by the name.
            is_secret = True
        else:
            continue
        for what in plain_secrets(text, is_secret=is_secret, names=_SECRET_SETTING):
            yield (
                f"{layer.origin}: {key}: expected {EXPECTED}, for a secret, got {what} in plain text, not"
                " shown here; who reads the file knows it: change the secret, too"
            )


def pipeline_names(conf_dir: Path, *envs: str) -> list[str]:
    """Return the names of all pipelines that the folder of configuration has, sorted.

    Args:
        conf_dir: The folder of configuration.
        envs: Environments in which to look, too. What only an environment names is no whole pipeline, and
            `load_config` refuses it, as it does a file whose name ends in .yaml.
    """
    folders = (conf_dir / folder / "pipelines" for folder in ("base", *envs))
    paths = (Path(name) for folder in folders for name in _names(folder))
    return sorted({path.stem for path in paths if path.suffix in (".yml", _OTHER_ENDING)})


def _names(folder: Path) -> list[str]:
    """Return what a folder holds, links to nothing included; nothing if there is no such folder.

    Raises:
        ConfigError: The folder cannot be read.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be read: {error.strerror}; let the user that runs this command read the folder"
        ) from None


def require_pipelines(conf_dir: Path, *envs: str) -> list[str]:
    """Return the names of all pipelines, see `pipeline_names`.

    Raises:
        ConfigError: There are none.
    """
    names = pipeline_names(conf_dir, *envs)
    if not names:
        raise ConfigError(
            f"{conf_dir}/base/pipelines: no pipeline (*.yml) here; name the folder with --conf-dir"
        )
    return names


def _files(name: str, env: str, conf_dir: Path) -> Iterator[_Source]:
    try:
        envs = sorted(p.name for p in conf_dir.iterdir() if p.is_dir() and p.name != "base")
    except OSError:
        raise ConfigError(
            f"{conf_dir}: no such folder of configuration; name one with --conf-dir, or run `oncelake init`"
        ) from None
    names = pipeline_names(conf_dir)
    if name not in names:
        close = get_close_matches(name, names, 1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(names) or 'none'}"
        raise ConfigError(f"{conf_dir}/base/pipelines/{name}.yml: no such pipeline; {hint}")
    _require_name(name, conf_dir)
    if env not in envs:
        raise ConfigError(f"{conf_dir}/{env}: no such environment; --env takes one of: {', '.join(envs)}")
    for folder in ("base", env):
        for path in (conf_dir / folder / "oncelake.yml", conf_dir / folder / "pipelines" / f"{name}.yml"):
            there = _names(path.parent)
            if (other := path.with_suffix(_OTHER_ENDING)).name in there:
                raise ConfigError(
                    f"{other}: expected a name that ends in .yml, got {_OTHER_ENDING}; rename the file"
                )
            if path.name in there:
                yield _Source(str(path), read_yaml(path))


def _require_name(name: str, conf_dir: Path) -> None:
    """Make sure that a file may be named so, before programs are run that its settings name.

    Raises:
        ConfigError: It may not.
    """
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        (refused,) = refused_values(error, name)
        raise ConfigError(
            f"{conf_dir}/base/pipelines/{name}.yml: expected {refused.expected()}, got"
            f" {refused.found_text(_LONGEST_SHOWN)}"
        ) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; an empty file is an empty one.

    Raises:
        ConfigError: The file cannot be read, is not YAML or holds something else.
    """
    try:
        text = read_text(path, LARGEST_YAML)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {why_unreadable(error)}") from None
    values = parse_yaml(text, str(path), ConfigError)
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}: expected keys and values, got {type(values).__name__}")
    return values or {}


def _environment(environ: Mapping[str, str]) -> Iterator[_Source]:
    if servers := environ.get(_SERVERS):
        require_text(servers, f"environment variable {_SERVERS}")
        yield _Source(f"environment variable {_SERVERS}", {"kafka": {"bootstrap_servers": servers}})


def _settings(settings: Sequence[str]) -> Iterator[_Source]:
    for setting in settings:
        key, equals, text = setting.partition("=")
        of_cluster = key.strip().startswith(f"{'.'.join(_CLUSTERS)}.")
        parts = key.strip().split(".", 4 if of_cluster else 2)
        if not equals or not all(parts):
            raise _no_setting(setting.strip())
        require_text(setting, f"--set {key.encode(errors='replace').decode()}")
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        value: Any = text[1:-1] if quoted else text
        if not _is_passed_on(parts):
            value = parse_yaml(text, f"--set {key}", ConfigError)
        for part in reversed(parts):
            value = {part: value}
        yield _Source(f"--set {key}", value)


def _no_setting(text: str) -> ConfigError:
    # What follows the key may be a secret.
    key = re.split(r"[\s=]", text, maxsplit=1)[0]
    if not key:
        found = "no key before =" if text else "nothing"
    else:
        found = "a key with an empty part" if "=" in text else "no ="
    where = f"--set {key}".strip()
    return ConfigError(f"{where}: expected --set key=value, such as --set kafka.topic=flights, got {found}")


def _is_passed_on(location: Sequence[str | int]) -> bool:
    """Return whether a setting is one of others, see `_verbatim`; those of a further cluster are as well."""
    section = tuple(location[:2])
    if section == _CLUSTERS and len(location) > len(_CLUSTERS) + 1:
        section = ("kafka", str(location[len(_CLUSTERS) + 1]))
    return section in _verbatim()


@cache
def _verbatim() -> frozenset[tuple[str, str]]:
    """Return the settings of others, which are passed on letter by letter, and may be secrets."""
    return frozenset(
        (section, key)
        for section, field in PipelineConfig.model_fields.items()
        for model in parts_of(field.annotation)
        for key, setting in getattr(model, "model_fields", {}).items()
        if _is_verbatim(setting.annotation)
    )


def _is_verbatim(annotation: Any) -> bool:
    kinds = list(parts_of(annotation))
    mappings = (get_args(kind) for kind in kinds if get_origin(kind) is dict)
    return SecretStr in kinds or any(str in parts_of(value) for _, value in mappings)


def _misshapen(values: Mapping[str, Any], model: Any, layer: _Source, above: str = "") -> Iterator[str]:
    """Yield the sections that are no mappings; a later layer would replace them, and earlier ones be lost."""
    for key, value in values.items():
        field = model.model_fields.get(str(key))
        kind: Any = field.annotation if field else None
        kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        section = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
        if section is None or (value is None and NoneType in kinds):
            continue
        if isinstance(value, dict):
            yield from _misshapen(value, section, layer, f"{above}{key}.")
        else:
            # Which may be a secret, put in a wrong place.
            found = "nothing" if value is None else f"a {type(value).__name__}, not shown here"
            yield (
                f"{layer.origin}: {above}{key}: expected keys with values, got {found}; write some, or remove"
                " the key"
            )


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _expand(
    value: Any, location: tuple[str, ...], layers: Sequence[_Source], environ: Mapping[str, str]
) -> Any:
    if isinstance(value, dict):
        return {
            str(key): _expand(item, (*location, str(key)), layers, environ) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_expand(item, location, layers, environ) for item in value]
    if not isinstance(value, str):
        return value
    return resolved(value, f"{_origin(layers, location)}: {'.'.join(location)}", environ)


def _origin(layers: Sequence[_Source], location: Sequence[str | int]) -> str:
    """Return the last layer that says anything of this key, else of the nearest key above it."""
    for length in range(len(location), 0, -1):
        for layer in reversed(layers):
            value: Any = layer.values
            for key in location[:length]:
                value = value.get(key) if isinstance(value, dict) and key in value else _Source
            if value is not _Source:
                return layer.origin
    return _pipeline_file(layers)


def _pipeline_file(layers: Sequence[_Source]) -> str:
    """Return the file of the pipeline that all environments read."""
    files = (layer.origin for layer in layers if Path(layer.origin).parent.name == "pipelines")
    return next(files, "configuration")


def _explain(refused: RefusedValue, layers: Sequence[_Source]) -> str:
    location, name = refused.location, ".".join(map(str, refused.location))
    # What does not fit together has no place of its own; its message names the settings.
    where = ": ".join(filter(None, (_origin(layers, location), name)))
    match refused.kind:
        case "extra_forbidden":
            known_keys = _known_keys(location[:-1])
            close = get_close_matches(str(location[-1]), known_keys, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"known keys: {', '.join(known_keys)}"
            return f"{where}: unknown key; {hint}"
        case "missing":
            place = _pipeline_file(layers) if location in _OF_ONE_PIPELINE else _origin(layers, location)
            return f"{place}: {name}: missing; add it here or with --set {name}=VALUE"
        case "value_error":
            return f"{where}: {refused.message}"
        case kind:
            is_section = kind == "dict_type" and where.startswith("--set")
            fix = f"; set one at a time: --set {name}.KEY=VALUE" if is_section else ""
            return f"{where}: expected {refused.expected()}, got {_shown(refused)}{fix}"


def _shown(refused: RefusedValue) -> str:
    """Return the value as a message may show it: secrets are put in wrong places, too."""
    location, value = refused.location, refused.found
    may_be_secret = isinstance(value, dict | list | tuple) and bool(value)
    may_be_secret |= _is_passed_on(location) or "@" in repr(value)
    may_be_secret |= tuple(location[:-1]) == _CLUSTERS and not refused.is_key
    if may_be_secret:
        return f"a {type(value).__name__}, not shown here"
    return refused.found_text(_LONGEST_SHOWN)


def _known_keys(location: Sequence[str | int]) -> list[str]:
    model: Any = PipelineConfig
    # Items of a list have numbers, and their keys are those of the list's model.
    if tuple(location[:2]) == _CLUSTERS:
        # The third is the name of a cluster.
        location = [*location[:2], *location[3:]]
    for key in (key for key in location if isinstance(key, str)):
        field = getattr(model, "model_fields", {}).get(key)
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        model = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
    return sorted(set(getattr(model, "model_fields", {})) - {"name", "env"})
