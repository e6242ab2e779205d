"""What a report asks of the tables."""
