"""One use case each: ingest, speed, batch, serving, report. They meet only in tables."""
