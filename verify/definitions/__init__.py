# SPDX-License-Identifier: Apache-2.0
"""Float64 definitions of every operator; NumPy only.

Each definition walks samples, taps or rows and scatters, where the kernels gather, so that the two cannot share a
mistake. Positions are computed step by step in ``coordinate_dtype`` (float32 or float64), as documented, because
floor() and the border tests depend on their last bit; everything after the position is float64.

What computes answers a Sum, what moves elements an array of the elements' own dtype.
"""
