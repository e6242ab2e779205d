"""One use case each. They meet in tables."""
