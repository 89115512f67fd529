# SPDX-License-Identifier: Apache-2.0
"""Commands that set up, generate, test and package the project; nothing here is installed."""

import sys

# Before any other module of this folder. What is in this file, and in a file that is run as a command, must parse on
# Python 3.6, so that an old interpreter reaches this sentence.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit(f"pybaracuda needs Python 3.10 or newer; this is {sys.version.split()[0]} ({sys.executable}).")
