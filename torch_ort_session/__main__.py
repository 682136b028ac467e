"""``python -m torch_ort_session``."""

import sys

from torch_ort_session.cli import main

if __name__ == "__main__":
    sys.exit(main())
