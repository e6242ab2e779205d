"""Writers: Delta tables, their shapes and their atomic commits."""
