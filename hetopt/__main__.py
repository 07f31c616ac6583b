"""``python -m hetopt`` is the command line."""

from hetopt.cli import main

main()
