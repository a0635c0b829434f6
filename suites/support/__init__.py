"""What several suites use: pairs, faulty servers and drivers, damage to files, the command line in this process."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
