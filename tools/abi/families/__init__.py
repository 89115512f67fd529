# SPDX-License-Identifier: Apache-2.0
"""The facts of the ABI table, a file for each operator family; only facts, in the vocabulary of tools/abi/model.py.

A new operator or dtype is a line in one of these files; tools/abi/generate.py then writes what follows from it. The
rest is its formula in native/ops/<folder> and its stamp in that folder's abi.cc; the kernels of a new dtype are listed
in launch.h. Tests that walk the table say what they want to know about it.
"""
