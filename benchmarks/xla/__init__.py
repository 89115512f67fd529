# SPDX-License-Identifier: Apache-2.0
"""The benchmark of whole JAX programs: problems, measurements, results and their pages."""
