"""Load a pipeline as its files describe it, for the command line and for whoever reads the lake in Python."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict, Unpack

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.expectations.suite_files import own_expectations
from pipelines.formats.contract_files import load_contract
from pipelines.formats.registered_formats import names_schemas
from pipelines.registry.schema_registry import open_registry, registry_of
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.preflight import check_conditions
from pipelines.spark.session import spark_session

_CONF: Final = Path("conf")
_CONTRACTS: Final = Path("data_contracts")


class Places(TypedDict, total=False):
    """Where a pipeline is described, and what wins over it.

    Attributes:
        env: The environment, a folder of `conf_dir`; `local` if not given.
        conf_dir: Where the configuration is; `conf` if not given.
        contracts_dir: Where the contracts are; `data_contracts` if not given.
        settings: As `--set`: `lake.root=/some/dir`.
    """

    env: str
    conf_dir: Path
    contracts_dir: Path
    settings: Sequence[str]


def load_pipeline(name: str, **places: Unpack[Places]) -> tuple[PipelineConfig, DataContract]:
    """Read and check configuration and contract, with the expectations that people added.

    Args:
        name: The pipeline.
        places: See `Places`.

    Raises:
        ConfigError: The configuration or a suite of expectations is refused.
        ContractError: The contract is refused.
    """
    conf_dir = places.get("conf_dir", _CONF)
    settings = places.get("settings", ())
    config = load_config(name, env=places.get("env", "local"), conf_dir=conf_dir, settings=settings)
    contract = load_contract(places.get("contracts_dir", _CONTRACTS) / config.contract)
    contract = replace(contract, expectations=own_expectations(conf_dir, name, contract))
    if names_schemas(contract):
        # Asks nothing yet: whether there is a registry, and whether its client takes the settings.
        open_registry(registry_of(config, contract))
    return config, contract


def open_pipeline(name: str, **places: Unpack[Places]) -> Pipeline:
    """Load a pipeline, as `load_pipeline` does, and start a session for it.

    Raises:
        ConfigError: The configuration or a suite of expectations is refused.
        ContractError: The contract is refused.
        InfrastructureError: There is no usable Java, or the jars cannot be had.
    """
    config, contract = load_pipeline(name, **places)
    spark = spark_session(config, "look")
    check_conditions(spark, contract)
    return Pipeline(spark, config, contract)
