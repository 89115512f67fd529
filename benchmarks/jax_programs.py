# SPDX-License-Identifier: Apache-2.0
"""Times the operators inside JAX's programs, beside what XLA itself makes of the same, on the pybaracuda that this
interpreter has. It needs jax.

python benchmarks/jax_programs.py --help
"""

import importlib.util
import sys
from pathlib import Path

# An installed package comes before this source tree's, whose libraries may not be built: import it while the tree is
# not on the path yet.
if importlib.util.find_spec("pybaracuda") is not None:
    import pybaracuda  # noqa: F401
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.xla.main import main

if __name__ == "__main__":
    sys.exit(main())
