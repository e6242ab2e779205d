"""Reports: model, queries, rendering."""
