"""How Great Expectations' pages look here: its content, in templates that load nothing and run no script.

Its own templates fetch styles and scripts from other people's servers, and show nothing without.
"""

import html
from importlib import resources
from typing import Any

from great_expectations.render.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, FunctionLoader

_TEMPLATES = {
    "page.j2": "page.j2",
    "index_page.j2": "page.j2",
    "bootstrap_table.j2": "bootstrap_table.j2",
    "collapse.j2": "collapse.j2",
    "graph.j2": "graph.j2",
    "page.css": "page.css",
}


def _own(name: str) -> str | None:
    if name not in _TEMPLATES:
        return None
    # Not a file loader: the package may be a zip on the Python path.
    folder = resources.files("pipelines.report.render").joinpath("templates", "data_docs")
    return folder.joinpath(_TEMPLATES[name]).read_text(encoding="utf-8")


def _ours_first(env: Environment) -> None:
    env.loader = ChoiceLoader([FunctionLoader(_own), *([env.loader] if env.loader else [])])


class PageView(DefaultJinjaPageView):
    """A page of a suite or of a validation."""

    def __init__(
        self, custom_styles_directory: str | None = None, custom_views_directory: str | None = None
    ) -> None:
        super().__init__(custom_styles_directory, custom_views_directory)
        _ours_first(self.env)

    def render_string_template(self, template: Any) -> Any:
        """Return a text of Great Expectations as HTML.

        The heading of a column is its name, which Great Expectations does not escape.
        """
        if isinstance(template, dict) and template.get("tag") == "h5" and not template.get("params"):
            template = template | {"template": html.escape(template["template"])}
        return super().render_string_template(template)  # type: ignore[no-untyped-call]


class IndexView(DefaultJinjaIndexPageView):
    """The page that lists the others."""

    def __init__(
        self, custom_styles_directory: str | None = None, custom_views_directory: str | None = None
    ) -> None:
        super().__init__(custom_styles_directory, custom_views_directory)
        _ours_first(self.env)
