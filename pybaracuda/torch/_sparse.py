# SPDX-License-Identifier: Apache-2.0
"""Routes of products of a compressed sparse matrix and a dense one, and of the gradient of its values.

A row of a CSR matrix times a dense matrix is a bag of the dense one's rows, each times its value: a sum in storage
order, cut every 256 terms. The transposed product adds by column, as the bags' gradient does. CSC is the transposed
matrix in CSR.
"""

from __future__ import annotations

from typing import Any

import torch

from ..embedding_bag import embedding_bag, embedding_bag_backward, embedding_bag_weights_backward
from ._named import INDICES, widened
from ._route import of_floats, route

__all__: list[str] = []

_FLOATS = "float32, float64, float16, bfloat16"


def _indices_of(sparse: Any) -> tuple[Any, Any]:
    """Answer where the compressed rows begin, and the places in them."""
    if sparse.layout == torch.sparse_csr:
        return sparse.crow_indices(), sparse.col_indices()
    return sparse.ccol_indices(), sparse.row_indices()


def _rows_of(begins: Any, places: Any) -> Any:
    """Answer the compressed row of each value."""
    return torch._convert_indices_from_csr_to_coo(begins, places, out_int32=begins.dtype == torch.int32)[0]


def _is_compressed(tensor: Any) -> bool:
    return tensor.layout in (torch.sparse_csr, torch.sparse_csc)


def _times(sparse: Any, dense: Any, is_wide: bool) -> Any:
    """Answer the product of a sparse matrix and a dense one, on request in the type in which sums wait."""
    begins, places = _indices_of(sparse)
    values = sparse.values()
    if is_wide:
        values, dense = widened(values), widened(dense)
    if sparse.layout == torch.sparse_csr:
        return embedding_bag(places, dense, begins, "sum", values, True)
    return embedding_bag_backward(dense, places, _rows_of(begins, places), sparse.shape[0], "sum", None, None, values)


def _product(mat1: Any, mat2: Any, is_wide: bool = False) -> Any:
    if _is_compressed(mat1):
        return _times(mat1, mat2, is_wide)
    # What is sparse stands at the left of the transposed product.
    return _times(mat2.t(), mat1.t(), is_wide).t().contiguous()


def _refusal(mat1: Any, mat2: Any) -> str:
    sparse, dense = (mat1, mat2) if _is_compressed(mat1) else (mat2, mat1)
    if not _is_compressed(sparse) or dense.layout != torch.strided:
        return "another layout"
    if mat1.dim() != 2 or mat2.dim() != 2 or sparse.values().dim() != 1 or mat1.shape[1] != mat2.shape[0]:
        return "shapes that do not fit"
    if sparse.device != dense.device:
        return "operands on several devices"
    if not sparse._nnz() or not dense.numel():
        return "an empty tensor"
    indices = _indices_of(sparse)[0]
    return of_floats(sparse, dense) or ("" if indices.dtype in INDICES else f"an index of {indices.dtype}")


_PRODUCTS = f"CSR or CSC and a dense matrix, in either order; {_FLOATS}; on the CPU never"
_OPTIONS: dict[str, Any] = {
    "group": "sparse_mm",
    "devices": ("cuda",),
    "whole": True,
    "level": "SparseCsr",
}


@route("aten::mm", _refusal, _PRODUCTS, **_OPTIONS)
def _mm(self: Any, mat2: Any) -> Any:
    return _product(self, mat2)


def _addmm_refusal(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> str:
    if refused := _refusal(mat1, mat2):
        return refused
    if self.layout != torch.strided or self.dtype != mat1.dtype or self.device != mat1.device:
        return "a sum of another layout, dtype or device"
    wanted = (mat1.shape[0], mat2.shape[1])
    extents = zip(reversed(self.shape), reversed(wanted), strict=False)
    fits = self.dim() <= 2 and all(extent in (1, full) for extent, full in extents)
    return "" if fits else "shapes that do not fit"


@route("aten::addmm", _addmm_refusal, _PRODUCTS, **_OPTIONS)
def _addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    # PyTorch does not look at what is added 0 times.
    if beta == 0 and alpha == 1:
        return _product(mat1, mat2)
    found = _product(mat1, mat2, is_wide=True)
    found = found if alpha == 1 else found * alpha
    if beta != 0:
        found = torch.add(found, self.to(found.dtype), alpha=beta)
    return found.to(self.dtype)


def _sampled_refusal(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> str:
    if self.layout != torch.sparse_csr or mat1.layout != torch.strided or mat2.layout != torch.strided:
        return "another layout"
    if any(each.dim() != 2 for each in (self, mat1, mat2)) or self.values().dim() != 1:
        return "shapes that do not fit"
    if mat1.shape[1] != mat2.shape[0] or self.shape != (mat1.shape[0], mat2.shape[1]):
        return "shapes that do not fit"
    if mat1.device != self.device or mat2.device != self.device:
        return "operands on several devices"
    if not self._nnz() or not mat1.numel() or not mat2.numel():
        return "an empty tensor"
    # PyTorch refuses others.
    if self.dtype not in (torch.float32, torch.float64) or self.crow_indices().dtype not in INDICES:
        return f"dtype {self.dtype}"
    return of_floats(self, mat1, mat2)


@route("aten::sparse_sampled_addmm", _sampled_refusal, "CSR; float32, float64; on the CPU never", **_OPTIONS)
def _sparse_sampled_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    begins, places = _indices_of(self)
    found = embedding_bag_weights_backward(mat1, mat2.t(), places, _rows_of(begins, places))
    found = found if alpha == 1 else found * alpha
    if beta != 0:
        found = torch.add(found, self.values(), alpha=beta)
    return torch.sparse_csr_tensor(begins.clone(), places.clone(), found, self.shape, check_invariants=False)
