# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/fuzz.py: drawing calls, what the contract says about them, memory, running and judging them."""
