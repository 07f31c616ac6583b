"""hetopt decides which work runs on which device, and proves how good the decision is."""

__version__ = "0.1.0"
