# SPDX-License-Identifier: Apache-2.0
"""How PyTorch, torch_scatter, CuPy and JAX do the segment operations, by the operations' names; nothing is timed here.

What a framework has no function for is written in its own functions, as its users do; where that would be another
operation, it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from benchmarks.harness.case import FrameworkCall, JaxCall

_TORCH_NAMES = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}
_EMPTY = {"sum": 0.0, "mean": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
Calls = dict[str, FrameworkCall]


class _Problem(NamedTuple):
    """What every way to call needs, ids or offsets in int64, as PyTorch wants them."""

    torch: Any
    given: Mapping[str, Any]
    reduce: str
    form: str
    rows: int
    segments: int
    index: Any

    @property
    def wide(self) -> Any:
        """Ids for every column."""
        columns = next(array.shape[1] for array in self.given.values() if array.dim() == 2)
        return self.index[:, None].expand(-1, columns)


def _torch_scatter() -> Any | None:
    """The module, if there is one that fits to this PyTorch."""
    if find_spec("torch_scatter") is None:
        return None
    try:
        return import_module("torch_scatter")
    except (ImportError, OSError):
        return None


def torch_calls(torch: Any, given: Mapping[str, Any], operation: str, form: str, rows: int, segments: int) -> Calls:
    """How PyTorch and torch_scatter do an operation, by name."""
    backward, reduce = operation.endswith("_backward"), operation.split("_")[0]
    index = given["offsets" if form == "csr" else "segment_ids"].long()
    problem = _Problem(torch, given, reduce, form, rows, segments, index)
    # It counts elements in 32 bits: from 2^31 on its kernels read what lies before the tensor, which ends most runs.
    scatter = _torch_scatter() if max(each.numel() for each in given.values()) < 2**31 else None
    if operation in ("gather", "sum_backward"):
        return _rows_of_segments(problem, scatter)
    if operation.endswith("with_arg_backward"):
        return _to_given_rows(problem, scatter)
    if reduce in ("logsumexp", "softmax"):
        if form == "csr":
            return {}
        written = _EXPONENTIALS[operation]
        calls: Calls = {"PyTorch": partial(written, problem)}
        if form == "unsorted" and not backward and scatter is not None:
            function = getattr(scatter, f"scatter_{reduce}")
            calls["torch_scatter"] = lambda: (function(given["input"], index, dim=0, dim_size=segments),)
        return calls
    if backward:
        return _reduction_gradients(problem, scatter, even="even" in operation)
    if operation.endswith("with_arg"):
        return _selections(problem, scatter)
    return _reductions(problem, scatter)


def torch_calls_with_empty(given: Mapping[str, Any], operation: str, empty: float) -> Calls:
    """How PyTorch reduces by ids where a segment without rows shall be `empty`."""
    values, out, name = given["input"], given["output"], _TORCH_NAMES[operation]
    wide = given["index"].long()[:, None].expand_as(values)
    return {
        "PyTorch scatter_reduce": lambda: (out.fill_(empty).scatter_reduce_(0, wide, values, name, include_self=False),)
    }


def _reductions(p: _Problem, scatter: Any | None) -> Calls:
    """Into a preallocated output that holds what segments without rows have."""
    values, out, empty, name = p.given["input"], p.given["output"], _EMPTY[p.reduce], _TORCH_NAMES[p.reduce]
    calls: Calls = {}
    if p.form == "csr":
        reduce = partial(p.torch.segment_reduce, values, p.reduce, offsets=p.index, axis=0, unsafe=True, initial=empty)
        calls["PyTorch segment_reduce"] = lambda: (reduce(),)
    else:
        # A mean must not count what is there before.
        own = p.reduce != "mean"
        wide, index = p.wide, p.index
        calls["PyTorch scatter_reduce"] = lambda: (
            out.fill_(empty).scatter_reduce_(0, wide, values, name, include_self=own),
        )
        if p.reduce == "sum":
            calls["PyTorch index_add"] = lambda: (out.zero_().index_add_(0, index, values),)
        else:
            calls["PyTorch index_reduce"] = lambda: (
                out.fill_(empty).index_reduce_(0, index, values, name, include_self=own),
            )
    if (function := _scatter_function(p, scatter)) is not None:
        calls["torch_scatter"] = lambda: (function(values, out=out.fill_(empty), reduce=p.reduce),)
    return calls


def _scatter_function(p: _Problem, scatter: Any | None) -> Callable[..., Any] | None:
    """torch_scatter's function of rows for the problem's form; its product is PyTorch's own."""
    if scatter is None or p.reduce == "prod":
        return None
    if p.form == "csr":
        return partial(scatter.segment_csr, indptr=p.index)
    if p.form == "sorted":
        return partial(scatter.segment_coo, index=p.index)
    return partial(scatter.scatter, index=p.index, dim=0)


def _selections(p: _Problem, scatter: Any | None) -> Calls:
    """Values and the rows that hold them, which PyTorch does not answer. torch_scatter's of empty segments are N."""
    values, out, empty, name = p.given["input"], p.given["output"], _EMPTY[p.reduce], _TORCH_NAMES[p.reduce]
    calls: Calls = {}
    if p.form != "csr":
        wide = p.wide
        calls["PyTorch scatter_reduce, values alone"] = lambda: (
            out.fill_(empty).scatter_reduce_(0, wide, values, name),
            None,
        )
    if scatter is not None:
        names = {"csr": "segment_{}_csr", "sorted": "segment_{}_coo", "unsorted": "scatter_{}"}
        function = getattr(scatter, names[p.form].format(p.reduce))
        positional = (p.index, 0) if p.form == "unsorted" else (p.index,)
        calls["torch_scatter"] = lambda: (function(values, *positional, out=out.fill_(empty))[0], None)
    return calls


def _rows_of_segments(p: _Problem, scatter: Any | None) -> Calls:
    """Each row is its segment's: the gradient of a sum, and gather."""
    by_rows = p.given["grad_input"] if "grad_input" in p.given else p.given["output"]
    values = p.given["grad_output"] if "grad_output" in p.given else p.given["input"]
    torch, index = p.torch, p.index
    calls: Calls = {}
    if p.form == "csr":
        lengths = index.diff()
        calls["PyTorch repeat_interleave"] = lambda: (torch.repeat_interleave(values, lengths, 0, output_size=p.rows),)
        if scatter is not None:
            calls["torch_scatter"] = lambda: (scatter.gather_csr(values, index, out=by_rows),)
        return calls
    calls["PyTorch index_select"] = lambda: (torch.index_select(values, 0, index, out=by_rows),)
    if p.form == "sorted" and scatter is not None:
        calls["torch_scatter"] = lambda: (scatter.gather_coo(values, index, out=by_rows),)
    elif "grad_output" in p.given:
        calls |= _scatter_gradient(p, scatter, torch.zeros_like(by_rows))
    return calls


def _backward(p: _Problem, output: Any, values: Any) -> FrameworkCall:
    """The backward of a graph that is retained."""
    gradient = p.given["grad_output"]
    return lambda: p.torch.autograd.grad(output, values, gradient, retain_graph=True)


def _to_given_rows(p: _Problem, scatter: Any | None) -> Calls:
    """To the row that the argument names; what belongs to no row lands in one too many."""
    gradient, arg = p.given["grad_output"], p.given["arg"].long()
    arg = p.torch.where(arg < 0, p.rows, arg)
    room = gradient.new_empty((p.rows + 1, gradient.shape[1]))
    calls: Calls = {"PyTorch scatter": lambda: (room.zero_().scatter_(0, arg, gradient)[: p.rows],)}
    # torch_scatter's takes the rows that its forward has kept: here one of each segment stands out.
    marked = gradient.new_zeros(room.shape).scatter_(0, arg, 1 if p.reduce == "max" else -1)[: p.rows]
    return calls | _scatter_gradient(p, scatter, marked)


def _scatter_gradient(p: _Problem, scatter: Any | None, values: Any) -> Calls:
    """torch_scatter's backward of its reduction of `values`."""
    if (function := _scatter_function(p, scatter)) is None:
        return {}
    values = values.detach().requires_grad_()
    # Offsets say themselves how many segments there are.
    sized = {} if p.form == "csr" else {"dim_size": p.segments}
    return {"torch_scatter": _backward(p, function(values, reduce=p.reduce, **sized), values)}


def _reduction_gradients(p: _Problem, scatter: Any | None, even: bool) -> Calls:
    """Backwards of retained graphs, of which PyTorch splits a tie evenly.

    torch_scatter's of an extreme starts from the rows that its forward has kept, which is another operation.
    """
    gradient, torch = p.given["grad_output"], p.torch
    # The gradient of a mean needs no rows, that of PyTorch's function does.
    values = p.given["input"] if "input" in p.given else gradient.new_ones((p.rows, gradient.shape[1]))
    values = values.detach().requires_grad_()
    calls: Calls = {}
    if p.form == "csr":
        # With ties it gives all of a negative gradient to each of them.
        if not even:
            options = {"offsets": p.index, "axis": 0, "unsafe": True, "initial": _EMPTY[p.reduce]}
            calls["PyTorch segment_reduce"] = _backward(p, torch.segment_reduce(values, p.reduce, **options), values)
    else:
        empty, own, name = torch.full_like(gradient, _EMPTY[p.reduce]), p.reduce != "mean", _TORCH_NAMES[p.reduce]
        scattered = empty.scatter_reduce(0, p.wide, values, name, include_self=own)
        calls["PyTorch scatter_reduce"] = _backward(p, scattered, values)
        indexed = empty.index_reduce(0, p.index, values, name, include_self=own)
        calls["PyTorch index_reduce"] = _backward(p, indexed, values)
    return calls | _scatter_gradient(p, scatter, values) if p.reduce == "mean" else calls


def _exponentials(p: _Problem) -> tuple[Any, Any, Any]:
    """Each segment's largest value, the rows' exponentials relative to it, and their sums."""
    values, index = p.given["input"], p.index
    shape = (p.segments, values.shape[1])
    largest = values.new_full(shape, float("-inf")).scatter_reduce_(0, p.wide, values, "amax")
    terms = values.sub(largest.index_select(0, index)).exp_()
    return largest, terms, values.new_zeros(shape).index_add_(0, index, terms)


def _logsumexp(p: _Problem) -> tuple[Any, ...]:
    largest, _, sums = _exponentials(p)
    return (p.torch.add(sums.log_(), largest, out=p.given["output"]),)


def _softmax(p: _Problem) -> tuple[Any, ...]:
    _, terms, sums = _exponentials(p)
    return (p.torch.div(terms, sums.index_select(0, p.index), out=p.given["output"]),)


def _logsumexp_backward(p: _Problem) -> tuple[Any, ...]:
    given, index = p.given, p.index
    terms = given["input"].sub(given["output"].index_select(0, index)).exp_()
    return (p.torch.mul(terms, given["grad_output"].index_select(0, index), out=given["grad_input"]),)


def _softmax_backward(p: _Problem) -> tuple[Any, ...]:
    gradient, values, index = p.given["grad_output"], p.given["output"], p.index
    sums = values.new_zeros((p.segments, values.shape[1])).index_add_(0, index, values * gradient)
    return (p.torch.mul(values, gradient - sums.index_select(0, index), out=p.given["grad_input"]),)


_EXPONENTIALS: dict[str, Callable[[_Problem], tuple[Any, ...]]] = {
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "logsumexp_backward": _logsumexp_backward,
    "softmax_backward": _softmax_backward,
}


# ---- CuPy


def cupy_calls(cupy: Any, given: Mapping[str, Any], operation: str, form: str) -> Calls:
    """CuPy adds or selects into an array by ids, and takes rows by ids; it has nothing for offsets."""
    if form == "csr":
        return {}
    ids = given["segment_ids"]
    if operation in ("sum_backward", "gather"):
        by_rows = given["grad_input"] if operation == "sum_backward" else given["output"]
        values = given["grad_output"] if operation == "sum_backward" else given["input"]

        def take() -> tuple[Any, ...]:
            cupy.take(values, ids, 0, out=by_rows)
            return (by_rows,)

        return {"CuPy": take}
    names = {"sum": "scatter_add", "max": "scatter_max", "min": "scatter_min"}
    if operation not in names:
        return {}
    import cupyx

    function = getattr(cupyx, names[operation])

    def scatter() -> tuple[Any, ...]:
        given["output"].fill(_EMPTY[operation])
        function(given["output"], ids, given["input"])
        return (given["output"],)

    return {"CuPy": scatter}


# ---- JAX


def jax_call(jax: Any, operation: str, form: str, segments: int) -> JaxCall | None:
    """JAX reduces by ids. It has no gradient of its product, no rows of extremes and nothing for offsets."""
    reduce = operation.split("_")[0]
    if form == "csr" or "with_arg" in operation or operation == "prod_backward":
        return None
    function, less = _jax_functions(jax, operation, reduce, form == "sorted", segments)
    inputs = {
        "gather": ("input", "segment_ids"),
        "sum_backward": ("grad_output", "segment_ids"),
        "mean_backward": ("grad_output", "segment_ids"),
        "logsumexp_backward": ("grad_output", "input", "output", "segment_ids"),
        "softmax_backward": ("grad_output", "output", "segment_ids"),
    }
    if less is not None:
        return JaxCall(function, ("grad_output", "input", "segment_ids"), less, "forward and vjp, less forward")
    return JaxCall(function, inputs.get(operation, ("input", "segment_ids")))


@cache
def _jax_functions(
    jax: Any, operation: str, reduce: str, is_sorted: bool, segments: int
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """The function and what is subtracted; the same objects every time, which jax.jit compiles once for a shape."""
    jnp, ops = jax.numpy, jax.ops

    def of(name: str, rows: Any, ids: Any) -> Any:
        return getattr(ops, f"segment_{name}")(rows, ids, segments, indices_are_sorted=is_sorted)

    def counts(ids: Any, dtype: Any) -> Any:
        return jnp.maximum(of("sum", jnp.ones(ids.shape, dtype), ids), 1)[:, None]

    def exponentials(rows: Any, ids: Any) -> tuple[Any, Any, Any]:
        largest = of("max", rows, ids)
        terms = jnp.exp(rows - largest[ids])
        return largest, terms, of("sum", terms, ids)

    def logsumexp(rows: Any, ids: Any) -> Any:
        largest, _, sums = exponentials(rows, ids)
        return largest + jnp.log(sums)

    def softmax(rows: Any, ids: Any) -> Any:
        _, terms, sums = exponentials(rows, ids)
        return terms / sums[ids]

    def softmax_backward(gradient: Any, output: Any, ids: Any) -> Any:
        return output * (gradient - of("sum", output * gradient, ids)[ids])

    def selected(gradient: Any, rows: Any, ids: Any) -> Any:
        return of(reduce, rows, ids)

    def selection_backward(gradient: Any, rows: Any, ids: Any) -> Any:
        return jax.vjp(lambda rows: of(reduce, rows, ids), rows)[1](gradient)[0]

    written: dict[str, Callable[..., Any]] = {
        "mean": lambda rows, ids: of("sum", rows, ids) / counts(ids, rows.dtype),
        "logsumexp": logsumexp,
        "softmax": softmax,
        "gather": lambda rows, ids: rows[ids],
        "sum_backward": lambda gradient, ids: gradient[ids],
        "mean_backward": lambda gradient, ids: (gradient / counts(ids, gradient.dtype))[ids],
        "logsumexp_backward": lambda gradient, rows, output, ids: gradient[ids] * jnp.exp(rows - output[ids]),
        "softmax_backward": softmax_backward,
    }
    if operation in written:
        return written[operation], None
    if operation.endswith("_backward"):
        return selection_backward, selected
    return partial(of, reduce), None
