"""One module for each command that the command line and the pytest plugin call."""
