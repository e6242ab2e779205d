"""How a report looks: HTML, Markdown, JSON, Prometheus, Data Docs."""
