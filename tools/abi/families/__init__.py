# SPDX-License-Identifier: Apache-2.0
"""The facts of the ABI table, a file for each operator family; only facts, in the vocabulary of tools/abi/model.py."""
