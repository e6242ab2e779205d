"""The demo: a year of real flights, replayed as unreliable producers do, and compared with the truth.

It runs the jobs as a user would, as separate processes, and is no part of the wheel:
`python -m demo --days 14`.
"""
