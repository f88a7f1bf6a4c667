"""``python -m tilewise`` is the command ``tilewise``."""

import sys

from tilewise.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
