"""The command line. It parses, calls the Python function of the same name, prints, and sets the exit code; nothing more.

Exit codes: 0 optimal or, with a gap asked for, feasible within it; 1 bad input or usage; 2 feasible, not proved; 3 proved
infeasible; 4 nothing found in the limit; 5 solver failure; 130 interrupted (the best plan so far is written first).

``--json`` writes one object to standard output and nothing else does; logs and errors go to standard error. Modules are
imported inside the commands, so that ``hetopt --help`` answers at once.
"""

from hetopt.cli import answer, compare, complete, files, look, plan, rounds, warm
from hetopt.cli.group import main

__all__ = ["answer", "compare", "complete", "files", "look", "main", "plan", "rounds", "warm"]
