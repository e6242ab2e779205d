"""What may be removed, and what must stay."""
