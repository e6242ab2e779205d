"""The templates of the pages, which show every text from data harmlessly."""

from functools import cache, partial
from importlib import resources
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from pipelines.report.render.text import percentage, plural, visible

_PACKAGE: Final = "pipelines.report.render"


def template(name: str, package: str = _PACKAGE) -> Template:
    """Return a template. Texts pass ``visible`` and are then escaped.

    An unknown name is an error.

    Args:
        name: The name of the template.
        package: Whose folder ``templates`` has it; what is not there is taken from this package's.
    """
    return _environment(package).get_template(name)


def _read(package: str, name: str) -> str:
    # Not a file loader: the package may be a zip on the Python path.
    own, shared = (resources.files(each).joinpath("templates", name) for each in (package, _PACKAGE))
    return (own if own.is_file() else shared).read_text(encoding="utf-8")


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=FunctionLoader(partial(_read, package)),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plural=plural, share=percentage, n=lambda count: f"{count:,}", cut=visible)
    return environment
