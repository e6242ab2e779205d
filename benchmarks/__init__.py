"""How fast the steps are, measured against a raw append of the same records in the same run."""
