"""The door of a checkout: ``python run_system.py chat`` is ``callboard chat``, installed or not."""

import sys

from callboard.cli import main

if __name__ == "__main__":
    sys.exit(main())
