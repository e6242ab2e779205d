"""Whether a day is whole: recounts from the tables, checks, differences between layers."""
