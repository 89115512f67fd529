# SPDX-License-Identifier: Apache-2.0
"""Memory that operators read and write, on the host and on a GPU, as blocks, as tensors and as frameworks' arrays."""
