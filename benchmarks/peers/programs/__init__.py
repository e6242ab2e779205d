"""What each peer runs: programs of their own. Only that of Oncelake imports anything of Oncelake.

Each takes one line of JSON on standard input, see `benchmarks.peers.trial.Order`, and ends when it has taken
what the topic held when it began. Started again, it goes on where it was.
"""
