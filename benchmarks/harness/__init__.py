# SPDX-License-Identifier: Apache-2.0
"""Every operator beside its peers, timed and checked in one run; nothing but the benchmark may import from here."""
