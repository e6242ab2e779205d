"""Exactly-once publishing: slots, transactions, progress, corrections."""
