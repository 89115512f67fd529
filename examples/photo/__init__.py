# SPDX-License-Identifier: Apache-2.0
"""Real jobs on a real photograph through the public functions only; nothing else may import from here."""
