"""The use cases, one module for each. They exchange data only through tables."""
