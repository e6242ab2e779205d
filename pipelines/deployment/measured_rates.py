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
    rate_in: float | None = None
    capacity: float | None = None
    executors: int | None = None


class _Lag(BaseModel):
    stages: list[_Stage]


def measured_rates(file: Path) -> Rates:
    """Return the rates of a pipeline.

    A record costs each stage as many seconds of an executor as it has executors, divided by the records that
    they process each second while they work. The executors of a cluster do the work of all stages.

    Args:
        file: What `oncelake lag --log-format json` has printed.

    Raises:
        ConfigError: It is no such file, or a stage has not processed enough to say.
    """
    stages = _read(file).stages
    if missing := sorted({*_STAGES} - {stage.stage for stage in stages}):
        raise ConfigError(f"--measured {file}: found no stage {missing[0]}, expected ingest and speed")
    ingest = [stage for stage in stages if stage.stage == "ingest"]
    rate_in = sum(stage.rate_in or 0.0 for stage in ingest)
    if not rate_in:
        raise ConfigError(
            f"--measured {file}: found no record that came in the last minutes; ask oncelake lag while"
            " records come at the usual rate, or give --rate-in and --rate-out"
        )
    # A record comes from one of several clusters, and then goes through all other stages.
    shares = {id(stage): (stage.rate_in or 0.0) / rate_in for stage in ingest}
    return Rates(rate_in, 1 / sum(shares.get(id(stage), 1.0) * _cost(file, stage) for stage in stages))


def _read(file: Path) -> _Lag:
    try:
        return _Lag.model_validate_json(read_text(file, LARGEST_JSON))
    except (OSError, UnicodeDecodeError) as error:
        found = f"cannot be read: {why_unreadable(error)}"
    except ValidationError:
        found = "found something else"
    raise ConfigError(
        f"--measured {file}: {found}; expected what lag has printed with --log-format json: write its"
        " standard output to the file"
    )


def _cost(file: Path, stage: _Stage) -> float:
    """Return the seconds of an executor that a record costs a stage."""
    if not stage.capacity:
        raise ConfigError(
            f"--measured {file}: {stage.stage} has no figures of micro-batches with records; start it, and"
            " ask oncelake lag when it has processed some"
        )
    if not stage.executors:
        raise ConfigError(
            f"--measured {file}: {stage.stage} has no executors, its driver does their work; measure it on a"
            " cluster as the one that is scaled, or give --rate-in and --rate-out"
        )
    return stage.executors / stage.capacity
