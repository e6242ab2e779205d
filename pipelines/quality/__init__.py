"""What is checked, and what is said about it: expectations, integrity, audit and report."""
