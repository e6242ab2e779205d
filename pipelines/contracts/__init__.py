"""Data contracts of the Open Data Contract Standard: rules, types, differences, event days."""
