"""The templates of the pages, which show every text from data harmlessly."""

from functools import cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from pipelines.report.render.text import percentage, plural, visible


def template(name: str) -> Template:
    """Return a template of the package. Texts pass ``visible`` and are then escaped.

    An unknown name is an error.
    """
    return _environment().get_template(name)


def _read(name: str) -> str:
    # Not a file loader: the package may be a zip on the Python path.
    return resources.files("pipelines.report.render").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plural=plural, share=percentage, n=lambda count: f"{count:,}", cut=visible)
    return environment
