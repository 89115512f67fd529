# SPDX-License-Identifier: Apache-2.0
"""The promise about bits, proven on the machine it runs on: fixed cases, their committed hashes, and what runs them."""
