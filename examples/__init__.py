# SPDX-License-Identifier: Apache-2.0
"""Programs that use pybaracuda through its public functions only; no example may import another."""
