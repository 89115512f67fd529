# SPDX-License-Identifier: Apache-2.0
"""Runs the demo on the pybaracuda that this interpreter has; beside it, it needs matplotlib and tqdm.

python examples/photo/run.py --help
"""

import importlib.util
import sys
from pathlib import Path

# An installed package comes before this source tree's, whose libraries may not be built: import it while the tree is
# not on the path yet.
if importlib.util.find_spec("pybaracuda") is not None:
    import pybaracuda  # noqa: F401
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.photo.main import main

if __name__ == "__main__":
    sys.exit(main())
