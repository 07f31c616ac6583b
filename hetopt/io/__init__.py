"""Reading and writing instances and results; importers, generators and exporters."""
