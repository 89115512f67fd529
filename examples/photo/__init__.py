# SPDX-License-Identifier: Apache-2.0
"""The demo: real jobs on a real photograph through the public functions only.

Nothing else may import from here, but for the benchmark, which shares `reference` and `progress`.
"""
