"""Text as Java reads it in a properties file."""


def as_property(text: str) -> str:
    """Return text as a value of a Java properties file, which is read as Latin-1.

    Source: https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html
    """
    units = text.replace("\\", "\\\\").encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)


def property_line(key: str, value: str) -> str:
    """Return a line of a Java properties file, with its end."""
    name = "".join(f"\\{sign}" if sign in " :=#!" else sign for sign in as_property(key))
    return f"{name}={as_property(value)}\n"
