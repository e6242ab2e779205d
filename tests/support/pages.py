"""Pages as people and programs get them."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr", "path", "rect", "line"}


class Page(HTMLParser):
    """What a reader, a screen reader and a browser get from the page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((tuple(self._open), " ".join(data.split())))

    def inside(self, tag: str) -> list[str]:
        """The texts inside elements of one tag."""
        return [text for path, text in self.texts if tag in path]

    @property
    def text(self) -> str:
        """Everything that is read, in order."""
        return " ".join(text for path, text in self.texts if "style" not in path)
