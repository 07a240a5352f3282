"""How clauses are run and reported: time limits, processes, signals, reports."""
