# SPDX-License-Identifier: Apache-2.0
"""The ABI table and what is generated from it."""
