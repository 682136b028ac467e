"""What CUDA graphs save, and what validation costs on a device: `python benchmarks/cuda.py --help`.

The tables are made in `ondevice.py`. This file is only its name: torch imports `cuda.bindings`, NVIDIA's, and
finds this file first when a benchmark runs, so nothing may happen here that torch does not expect.
"""

import sys
from pathlib import Path

__path__ = [str(found) for found in (Path(folder, "cuda") for folder in sys.path) if found.is_dir()]

if __name__ == "__main__":
    from ondevice import main

    sys.exit(main())
