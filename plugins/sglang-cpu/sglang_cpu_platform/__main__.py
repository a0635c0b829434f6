"""Run a command in the platform's environment: `python -m sglang_cpu_platform COMMAND…`."""

from __future__ import annotations

import os
import sys

from sglang_cpu_platform import environment


def _main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m sglang_cpu_platform COMMAND [ARGUMENT…]")
    os.execvpe(sys.argv[1], sys.argv[1:], environment())  # noqa: S606 - the command is the user's own


if __name__ == "__main__":
    _main()
