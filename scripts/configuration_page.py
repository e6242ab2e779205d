"""Write docs/configuration.md, the settings of a pipeline, from the models: `make pages`."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from docstring_parser import parse
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.config.client_templates import PURPOSES, SINK_TEMPLATES, SOURCE_TEMPLATES
from pipelines.config.model import PipelineConfig
from pipelines.config.risks import RISKS
from pipelines.durations import format_interval

PAGE: Final = "docs/configuration.md"
_NOT_SET_BY_USERS: Final = ("name", "env")
_HEAD: Final = """# Configuration

This page lists all settings, their defaults, and how files, environment variables and `--set` are combined.
Settings are read in this order. A later one overrides an earlier one, key by key:

1. `conf/base/oncelake.yml`
2. `conf/base/pipelines/NAME.yml`
3. `conf/ENV/oncelake.yml`
4. `conf/ENV/pipelines/NAME.yml`
5. the environment variable `KAFKA_BOOTSTRAP_SERVERS`
6. `--set key=value`

NAME is the name of the pipeline: letters, digits, `_` and `-`, with a letter or a digit first. A name with a
dot is refused ([decision](decisions/0087-names-of-pipelines-have-no-dots.md)); `kafka.topic` may have some.
`--env` sets ENV; the default is `local`. `--conf-dir` sets another folder than `conf`.
`KAFKA_BOOTSTRAP_SERVERS` sets `kafka.bootstrap_servers` in every environment: unset it before you use
another cluster.
`${NAME}` in a value is replaced by the environment variable NAME, which must be set, `${file:/PATH}` by the
content of a file, and `${command:PROGRAM ARGUMENTS}` by the output of a program. Use them for secrets, which
are refused in plain text in files. See [Security](security.md#secrets).
A file must be a regular file, of 4 MiB at most.
If a key is unknown or a value is invalid, a job ends with exit code 2 before it starts Spark.
`oncelake plan --pipeline NAME` checks all settings and shows the most important ones; it needs
neither Spark nor Kafka.

Write intervals as `10 seconds` or `1 day 12 hours`. The units are milliseconds, seconds, minutes,
hours, days and weeks.
A key with an empty default is required, unless its section is optional; `none` means that the key is
optional.

This page is generated from the models in `pipelines/config` by `make pages`.
"""
_TEMPLATES: Final = """## Client templates

`kafka.template` sets how the topic is read (source), `publish.template` how the output topic is
written (sink). Without a template the clients keep their defaults, except that a fetch that finds
nothing ends after 10 ms (`fetch.max.wait.ms`) where `fetch.min.bytes` is 1. `kafka.options` and
`publish.options` override a template, setting by setting. `oncelake plan` shows what is in use.

{purposes}

| template | of | setting | value | why |
|---|---|---|---|---|
"""
_RISKS: Final = """## Risks

A setting that loses data, gives a login away, or puts needless load on the cluster, is refused with exit
code 2 by the job that would do the harm, or found by [`oncelake doctor`](doctor.md). All other jobs
start. If you accept the risk, add its name to `accept_risks`:

```yaml
# conf/prod/pipelines/flights.yml
accept_risks: [starting_offsets_latest]
```

No name accepts `failOnDataLoss=false`, auto commit, or other values of `acks` and `enable.idempotence` in
`publish.options`: Oncelake sets these itself.

| risk | setting | what happens | where it is seen |
|---|---|---|---|
"""


def page_text() -> str:
    """Return the page: a table of settings for each section of the configuration."""
    tables = [_HEAD, _section("The pipeline", list(_top()))]
    for name, field in PipelineConfig.model_fields.items():
        if model := _model_of(field):
            optional = " The section is optional." if field.default is None else ""
            intro = f"{_documented(model)[0]}{optional}\n\n"
            tables.append(_section(f"`{name}`", list(_rows(model, f"{name}.")), intro))
    return "\n".join([*tables, _templates(), _risks()])


def _templates() -> str:
    rows = [
        f"| {name} | {of} | `{each.name}` | `{each.value}` | {each.reason} |"
        for name in PURPOSES
        for of, templates in (("source", SOURCE_TEMPLATES), ("sink", SINK_TEMPLATES))
        for each in templates[name]
    ]
    purposes = "\n".join(f"- `{name}`: {purpose}" for name, purpose in PURPOSES.items())
    return _TEMPLATES.format(purposes=purposes) + "\n".join(rows) + "\n"


def _risks() -> str:
    rows = (f"| {name} | {risk.setting} | {risk.harm} | {risk.seen} |" for name, risk in RISKS.items())
    return _RISKS + "\n".join(rows) + "\n"


def _section(title: str, rows: list[str], intro: str = "") -> str:
    return f"## {title}\n\n{intro}| key | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _top() -> Iterator[str]:
    _, meanings = _documented(PipelineConfig)
    for name, field in PipelineConfig.model_fields.items():
        if name not in _NOT_SET_BY_USERS and _model_of(field) is None:
            yield _row(name, field, meanings[name])


def _rows(model: type[BaseModel], above: str) -> Iterator[str]:
    _, meanings = _documented(model)
    for name, field in model.model_fields.items():
        inner = _model_of(field)
        if inner:
            named = "NAME." if get_origin(field.annotation) is dict else ""
            yield from _rows(inner, f"{above}{name}.{named}")
        else:
            yield _row(above + name, field, meanings[name])


def _row(key: str, field: FieldInfo, meaning: str) -> str:
    return f"| `{key}` | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value: Any = field.default
    match value:
        case None | ():
            return "none"
        case timedelta():
            return f"`{format_interval(value)}`"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`[{', '.join(value)}]`"
        case _:
            return f"`{value}`"


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a section.

    None for a value, and for the items of a list, which its meaning explains.
    """
    if get_origin(field.annotation) in (tuple, Literal):
        return None
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _documented(model: type[BaseModel]) -> tuple[str, dict[str, str]]:
    """Return what a model's docstring says of it, and of each of its settings."""
    found = parse(model.__doc__ or "")
    meanings = {entry.arg_name: " ".join((entry.description or "").split()) for entry in found.params}
    return " ".join((found.description or "").split()), meanings


if __name__ == "__main__":
    (Path(__file__).resolve().parent.parent / PAGE).write_text(page_text(), encoding="utf-8")
