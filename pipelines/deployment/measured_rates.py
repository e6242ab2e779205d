"""Rates for KEDA, from what `oncelake lag` has measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines.errors import ConfigError
from pipelines.text_files import LARGEST_JSON, read_text, why_unreadable

_STAGES: Final = ("ingest", "speed")


@dataclass(frozen=True)
class Rates:
    """What comes, and what is processed.

    Attributes:
        rate_in: Records that come each second.
        rate_out: Records that one executor takes through all stages each second.
    """

    rate_in: float
    rate_out: float


class _Stage(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    stage: str
    cluster: str | None = None
    rate_in: float | None = None
    capacity: float | None = None
    executors: int | None = None

    @property
    def name(self) -> str:
        return self.stage if self.cluster is None else f"{self.stage}@{self.cluster}"


class _Lag(BaseModel):
    pipeline: str
    env: str
    error: str | None = None
    stages: list[_Stage] = []


def measured_rates(file: Path, pipeline: str, env: str) -> Rates:
    """Return the rates of a pipeline.

    A record costs each stage as many seconds of an executor as it has executors, divided by the records that
    they process each second while they work. The executors of a cluster do the work of all stages.

    Args:
        file: What `oncelake lag --format json` has printed.
        pipeline: The pipeline that it has to be of.
        env: The environment that it has to be of.

    Raises:
        ConfigError: It is no such file, or a stage has not processed enough to say.
    """
    lag = _read(file)
    if (lag.pipeline, lag.env) != (pipeline, env):
        raise ConfigError(
            f"--measured {file}: found figures of {lag.pipeline} in {lag.env}, expected those of {pipeline}"
            f" in {env}"
        )
    if lag.error is not None:
        raise ConfigError(f"--measured {file}: lag has failed: {lag.error}")
    if missing := sorted({*_STAGES} - {stage.stage for stage in lag.stages}):
        raise ConfigError(f"--measured {file}: found no stage {missing[0]}, expected ingest and speed")
    ingest = [stage for stage in lag.stages if stage.stage == "ingest"]
    if unknown := next((stage for stage in ingest if stage.rate_in is None), None):
        raise ConfigError(
            f"--measured {file}: what comes to {unknown.name} is unknown; ask lag again when its cluster"
            " answers"
        )
    rate_in = sum(stage.rate_in or 0.0 for stage in ingest)
    if not rate_in:
        raise ConfigError(
            f"--measured {file}: found no record that came in the last minutes; ask lag while records come at"
            " the usual rate, or give --rate-in and --rate-out"
        )
    # A record comes from one of several clusters, and then goes through all other stages.
    shares = {id(stage): (stage.rate_in or 0.0) / rate_in for stage in ingest}
    costs = ((shares.get(id(stage), 1.0), stage) for stage in lag.stages)
    return Rates(rate_in, 1 / sum(share * _cost(file, stage) for share, stage in costs if share))


def _read(file: Path) -> _Lag:
    try:
        return _Lag.model_validate_json(read_text(file, LARGEST_JSON))
    except (OSError, UnicodeDecodeError) as error:
        found = f"cannot be read: {why_unreadable(error)}"
    except ValidationError:
        found = "found something else"
    raise ConfigError(
        f"--measured {file}: {found}; expected what lag has printed with --format json: write its"
        " standard output to the file"
    )


def _cost(file: Path, stage: _Stage) -> float:
    """Return the seconds of an executor that a record costs a stage."""
    if not stage.capacity:
        raise ConfigError(
            f"--measured {file}: {stage.name} has no figures of micro-batches with records; start it, and"
            " ask lag when it has processed some"
        )
    if not stage.executors:
        raise ConfigError(
            f"--measured {file}: {stage.name} has no executors, its driver does their work; measure it on a"
            " cluster as the one that is scaled, or give --rate-in and --rate-out"
        )
    return stage.executors / stage.capacity
