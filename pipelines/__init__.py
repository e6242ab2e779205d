"""Oncelake: every Kafka event exactly once in the lake, rebuilt nightly and proven by an audit."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("oncelake")
except PackageNotFoundError:  # run from the packaged zip, which carries no metadata
    __version__ = "0.1.0"
