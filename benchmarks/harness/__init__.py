# SPDX-License-Identifier: Apache-2.0
"""The benchmark: every operator beside its peers, timed and checked in one run; nothing else may import from here."""
