# SPDX-License-Identifier: Apache-2.0
"""The benchmark and its results; run.py is the command."""
