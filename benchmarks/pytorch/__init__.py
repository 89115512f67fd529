# SPDX-License-Identifier: Apache-2.0
"""What PyTorch programs gain from `pybaracuda.torch.install()`; the C ABI's own figures are harness's."""
