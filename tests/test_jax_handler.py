# SPDX-License-Identifier: Apache-2.0
"""The handlers of XLA's custom calls, beside the installed jaxlib: places of fields, names, programs that are wrong."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
import pytest
from jax import export
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax
from pybaracuda import _abi, _kernel, _library
from pybaracuda._descriptor import Descriptor
from pybaracuda.affine_grid import AffineGridBackwardDescriptor
from pybaracuda.grid_sample import GridSampleDescriptor
from pybaracuda.jax._arguments import arguments_of
from pybaracuda.jax._handler import ffi
from tools import check_exports

ROOT = Path(__file__).resolve().parent.parent
HANDLER = _library.handler_path()
HEADER = Path(jaxlib.__file__).parent / "include/xla/ffi/api/c_api.h"
# What this library's declarations are called -> what XLA's are.
STRUCTS = {
    # It has had two names.
    "Extension": ("decltype(XLA_FFI_Metadata_Extension::extension_base)", ("struct_size", "type", "next")),
    "Version": ("XLA_FFI_Api_Version", ("struct_size", "extension_start", "major_version", "minor_version")),
    "Metadata": ("XLA_FFI_Metadata", ("struct_size", "api_version", "traits")),
    "MetadataExtension": ("XLA_FFI_Metadata_Extension", ("extension_base", "metadata")),
    "ErrorCreateArguments": ("XLA_FFI_Error_Create_Args", ("struct_size", "extension_start", "message", "errc")),
    "StreamGetArguments": ("XLA_FFI_Stream_Get_Args", ("struct_size", "extension_start", "ctx", "stream")),
    "Api": ("XLA_FFI_Api", ("struct_size", "extension_start", "api_version", "internal_api")),
    "Buffer": ("XLA_FFI_Buffer", ("struct_size", "extension_start", "dtype", "data", "rank", "dims")),
    "Bytes": ("XLA_FFI_ByteSpan", ("ptr", "len")),
    "Array": ("XLA_FFI_Array", ("dtype", "size", "data")),
    "Attributes": ("XLA_FFI_Attrs", ("struct_size", "extension_start", "size", "types", "names", "attrs")),
    "CallFrame": (
        "XLA_FFI_CallFrame",
        ("struct_size", "extension_start", "api", "ctx", "stage", "args", "rets", "attrs"),
    ),
}
OTHER_NAMES = [
    ("Api", "create_error", "XLA_FFI_Api", "XLA_FFI_Error_Create"),
    ("Api", "get_stream", "XLA_FFI_Api", "XLA_FFI_Stream_Get"),
    *(
        ("Buffers", ours, f"XLA_FFI_{side.capitalize()}", theirs)
        for side in ("args", "rets")
        for ours, theirs in [("size", "size"), ("types", "types"), ("buffers", side)]
    ),
]
CONSTANTS = {
    "kMetadataExtension": "XLA_FFI_Extension_Metadata",
    "kExecuteStage": "XLA_FFI_ExecutionStage_EXECUTE",
    "kArrayAttribute": "XLA_FFI_AttrType_ARRAY",
    "kStringAttribute": "XLA_FFI_AttrType_STRING",
    "kCommandBufferCompatible": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    "kInvalidArgument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "kNotFound": "XLA_FFI_Error_Code_NOT_FOUND",
    "kUnimplemented": "XLA_FFI_Error_Code_UNIMPLEMENTED",
    "kInternal": "XLA_FFI_Error_Code_INTERNAL",
    **{
        f"k{name}": f"XLA_FFI_DataType_{name.upper()}"
        for name in ("S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16", "F32", "F64", "C64", "C128", "BF16")
    },
    "kPred": "XLA_FFI_DataType_PRED",
    "kF8E5M2": "XLA_FFI_DataType_F8E5M2",
    "kF8E4M3FN": "XLA_FFI_DataType_F8E4M3FN",
}


def compile_program(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler is not None, "the native build needs a C++ compiler, so the tests may"
    (folder / "program.cc").write_text(source)
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{ROOT / 'native'}", "program.cc"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def assertions() -> list[str]:
    fields = [(ours, field, theirs, field) for ours, (theirs, names) in STRUCTS.items() for field in names]
    lines = [
        f"static_assert(offsetof(baracuda::xla::{ours}, {field}) == offsetof({theirs}, {other}));"
        for ours, field, theirs, other in (*fields, *OTHER_NAMES)
    ]
    # Those that are passed in memory of ours must be as long as the runtime believes.
    lines += [
        f"static_assert(sizeof(baracuda::xla::{ours}) == sizeof({STRUCTS[ours][0]}));"
        for ours in ("ErrorCreateArguments", "StreamGetArguments", "Bytes", "Array", "Extension", "Version")
    ]
    lines += [f"static_assert(int(baracuda::xla::{ours}) == int({theirs}));" for ours, theirs in CONSTANTS.items()]
    lines += [
        "static_assert(int(baracuda::xla::kBuffer) == int(XLA_FFI_ArgType_BUFFER));",
        "static_assert(int(baracuda::xla::kBuffer) == int(XLA_FFI_RetType_BUFFER));",
        # A newer version of the interface must be looked at before it is answered.
        "static_assert(XLA_FFI_API_MAJOR == 0 && XLA_FFI_API_MINOR <= baracuda::xla::kNewestMinor);",
    ]
    return lines


def test_every_field_lies_where_the_installed_jaxlib_has_it(tmp_path: Path) -> None:
    start = f'#include "{HEADER}"\n#include "xla/ffi.h"\n'
    done = compile_program(tmp_path, start + "\n".join(assertions()) + "\n")
    assert done.returncode == 0, done.stderr
    # The comparison sees a field that lies elsewhere.
    wrong = "static_assert(offsetof(baracuda::xla::Buffer, rank) == offsetof(XLA_FFI_Buffer, data));\n"
    assert compile_program(tmp_path, start + wrong).returncode != 0


def test_every_declared_field_is_compared() -> None:
    text = (ROOT / "native/xla/ffi.h").read_text()
    compared = {(ours, field) for ours, (_, names) in STRUCTS.items() for field in names}
    compared |= {(ours, field) for ours, field, _, _ in OTHER_NAMES}
    compared |= {("Buffers", "struct_size"), ("Buffers", "extension_start"), ("Api", "unread")}
    declared = set()
    for name, body in re.findall(r"struct (\w+) \{[^\n]*\n(.*?)\n\};", text, flags=re.DOTALL):
        for line in body.splitlines():
            found = re.search(r"\(\*(\w+)\)|(\w+)(?:\[\d+\])?;", line)
            assert found, line
            declared.add((name, found[1] or found[2]))
    assert declared == compared


def test_exports_and_needed_libraries() -> None:
    assert check_exports.main([str(ROOT / "native/xla/handler.h"), str(HANDLER)]) == 0


def test_places_in_blocks_are_those_of_the_package() -> None:
    """The generated table has every symbol once, sorted, with the block's size that Python's table has."""
    text = (ROOT / "native/xla/symbols.h").read_text()
    layouts = {name: int(size) for name, size in re.findall(r"constexpr Layout (\w+) = \{\n    (\d+),", text)}
    symbols = re.findall(r'\{"(\w+)", &(\w+),', text)
    names = [name for name, _ in symbols]
    assert names == sorted(names)
    formats = {
        f"{operator.name}_{variant.token}": variant.block_format
        for operator in _abi.OPERATORS.values()
        for variant in operator.variants.values()
    }
    assert set(names) == set(formats)
    assert {name: layouts[layout] for name, layout in symbols} == {
        name: struct.calcsize(code) for name, code in formats.items()
    }


def call(descriptor: Descriptor, arrays: list[Any], results: list[Any], **changes: Any) -> Any:
    """A custom call as a program has it, with other attributes than it should."""
    kernel = _kernel.Kernel(descriptor, "cpu")
    attributes = {
        "symbol": f"{kernel.operator.name}_{kernel.variant.token}",
        "arguments": arguments_of(kernel),
        **changes,
    }
    target = attributes.pop("target", pybaracuda.jax.TARGET)
    function = jax.jit(lambda *x: ffi.ffi_call(target, results)(*x, **attributes))
    with jax.default_device(jax.devices("cpu")[0]):
        return jax.block_until_ready(function(*arrays))


PROBLEM = GridSampleDescriptor(1, 2, 3, 4, 5, 6)
ARRAYS = [np.ones((1, 2, 3, 4), np.float32), np.zeros((1, 5, 6, 2), np.float32)]
RESULTS = [jax.ShapeDtypeStruct((1, 2, 5, 6), np.float32)]


def arguments(**changes: int) -> Any:
    """The problem's scalars, some of them changed."""
    content = bytearray(bytes(arguments_of(_kernel.Kernel(PROBLEM, "cpu"))))
    for name, value in changes.items():
        struct.pack_into("@i", content, 4 * ("n", "c", "ih", "iw", "oh", "ow").index(name), value)
    return np.frombuffer(bytes(content), np.uint8)


def test_a_call_as_it_should_be() -> None:
    (output,) = call(PROBLEM, ARRAYS, RESULTS)
    np.testing.assert_array_equal(output, pybaracuda.grid_sample(*ARRAYS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbol": "grid_sample_2d_f80"}, "there is no operator grid_sample_2d_f80"),
        ({"symbol": "grid_sample_2d"}, "there is no operator grid_sample_2d"),
        ({"symbol": "roi_align_f32"}, "are not the arguments of a problem"),
        ({"symbol": "affine_grid_2d_f32"}, "are not the arguments of a problem|operands"),
        ({"symbol": 3}, "wanted the attributes"),
        ({"arguments": arguments()[:-8]}, "are not the arguments of a problem"),
        ({"arguments": np.zeros(5000, np.uint8)}, "are not the arguments of a problem"),
        ({"arguments": arguments().view(np.int32)}, "wanted the attributes"),
        ({"arguments": arguments(n=2)}, "the shape of tensor 0 is not the problem's"),
        ({"arguments": arguments(oh=60)}, "the shape of tensor 1 is not the problem's"),
        ({"arguments": arguments(c=-1)}, "the shape of tensor 0 is not the problem's"),
        ({"arguments": arguments(ih=2**31 - 1, iw=2**31 - 1, c=2**31 - 1)}, "the shape of tensor 0 is not"),
        ({"more": 1}, "wanted the attributes"),
    ],
)
def test_damaged_attributes_end_in_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        call(PROBLEM, ARRAYS, RESULTS, **changes)
    assert type(caught.value).__name__ in ("XlaRuntimeError", "JaxRuntimeError")


@pytest.mark.parametrize(
    ("arrays", "results", "message"),
    [
        (ARRAYS[:1], RESULTS, "1 operands and 1 results are not what the operator has"),
        ([*ARRAYS, ARRAYS[0]], RESULTS, "3 operands"),
        (ARRAYS, [*RESULTS, *RESULTS], "the workspace is no uint8"),
        ([ARRAYS[0].astype(np.float16), ARRAYS[1]], RESULTS, "tensor 0 has XLA's dtype 10"),
        (ARRAYS, [jax.ShapeDtypeStruct((1, 2, 5, 5), np.float32)], "the shape of tensor 2 is not the problem's"),
    ],
)
def test_other_buffers_than_the_problem_has_end_in_an_error(arrays: Any, results: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        call(PROBLEM, arrays, results)


def test_the_library_s_own_error_is_the_program_s() -> None:
    """What only the C function knows: here a workspace that is too small."""
    problem = pybaracuda.GridSampleBackwardDescriptor(1, 2, 3, 4, 5, 6)
    arrays = [np.ones((1, 2, 5, 6), np.float32), *ARRAYS]
    results = [jax.ShapeDtypeStruct(each.shape, np.float32) for each in ARRAYS]
    needed = _kernel.Kernel(problem, "cpu").workspace_size
    right = call(problem, arrays, [*results, jax.ShapeDtypeStruct((needed,), np.uint8)])
    np.testing.assert_array_equal(right[0], pybaracuda.grid_sample_backward(*arrays)[0])
    with pytest.raises(Exception, match=rf"workspace has {needed - 1} bytes; wanted {needed}"):
        call(problem, arrays, [*results, jax.ShapeDtypeStruct((needed - 1,), np.uint8)])


def test_a_program_of_another_protocol_finds_no_handler() -> None:
    assert re.fullmatch(r"pybaracuda_v\d+", pybaracuda.jax.TARGET)
    with pytest.raises(Exception, match="pybaracuda_v0"):
        call(PROBLEM, ARRAYS, RESULTS, target="pybaracuda_v0")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (pybaracuda.jax.TARGET.encode(), b"pybaracuda_v0", "pybaracuda_v0"),
        (b"grid_sample_2d_f32", b"grid_sample_2d_f00", "there is no operator grid_sample_2d_f00"),
        (bytes(arguments()[:24]), bytes(arguments(oh=60)[:24]), "the shape of tensor 1 is not the problem's"),
    ],
    ids=["protocol", "operator", "problem"],
)
def test_an_exported_program_that_was_changed_ends_in_an_error(right: bytes, wrong: bytes, message: str) -> None:
    assert len(right) == len(wrong)
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in pybaracuda.jax.TARGETS]
    program = export.export(jax.jit(pybaracuda.jax.grid_sample), platforms=["cpu"], disabled_checks=checks)(*ARRAYS)
    blob = bytes(program.serialize())
    assert right in blob
    with jax.default_device(jax.devices("cpu")[0]):
        np.testing.assert_array_equal(
            export.deserialize(bytearray(blob)).call(*ARRAYS), pybaracuda.grid_sample(*ARRAYS)
        )
        with pytest.raises(Exception, match=message) as caught:
            jax.block_until_ready(export.deserialize(bytearray(blob.replace(right, wrong))).call(*ARRAYS))
    assert type(caught.value).__name__ in ("XlaRuntimeError", "JaxRuntimeError")


def test_handlers_refuse_another_library() -> None:
    native = ctypes.CDLL(str(HANDLER))
    native.baracuda_xla_attach.restype = ctypes.c_char_p
    native.baracuda_xla_attach.argtypes = [ctypes.c_int32, ctypes.c_void_p]
    handle = _library.load("cpu").handle
    assert native.baracuda_xla_attach(1, handle) == b"it is another backend's library"
    assert native.baracuda_xla_attach(0, ctypes.CDLL("libc.so.6")._handle) == b"it is no baracuda_kernels library"
    assert native.baracuda_xla_attach(0, handle) is None


def in_a_process(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path(pybaracuda.__file__).parents[1]), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_importing_the_package_imports_no_jax() -> None:
    done = in_a_process("import sys, pybaracuda, pybaracuda.__main__\nassert 'jax' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_without_jax_the_extra_is_named() -> None:
    done = in_a_process("import sys\nsys.modules['jax'] = None\nimport pybaracuda.jax")
    assert done.returncode != 0
    assert "pip install 'pybaracuda[jax]'" in done.stderr


def test_info_shows_the_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    from pybaracuda.__main__ import info

    assert info() == 0
    printed = capsys.readouterr().out
    assert f"jax: {HANDLER}\n  available" in printed
    assert f"jax {jax.__version__}" in printed


class Greedy:
    """A CUDA library that wants more scratch than the CPU's, for every problem."""

    def function(self, operator: object, variant: object, verb: str) -> Callable[..., int]:
        assert verb == "workspace_size"
        return lambda *sizes: 1234567


def program_for(*platforms: str) -> str:
    """A program with one call that wants scratch, on the CPU as on CUDA."""

    def gradient(grid: Any, grad: Any) -> Any:
        return jax.vjp(lambda theta: pybaracuda.jax.affine_grid(theta, (2, 1, 30, 40)), grid)[1](grad)

    theta, grad = np.ones((2, 2, 3), np.float32), np.ones((2, 30, 40, 2), np.float32)
    return str(jax.jit(gradient).trace(theta, grad).lower(lowering_platforms=platforms).as_text())


NEEDED = _kernel.Kernel(AffineGridBackwardDescriptor(2, 30, 40), "cpu").workspace_size


@pytest.mark.parametrize(
    ("platforms", "scratch"),
    [(("cpu",), NEEDED), (("cuda",), 1234567), (("cpu", "cuda"), 1234567)],
    ids=lambda each: "+".join(each) if isinstance(each, tuple) else "",
)
def test_scratch_suffices_on_every_platform_of_a_program(
    platforms: tuple[str, ...], scratch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybaracuda.jax import _primitive

    monkeypatch.setattr(_primitive, "_cuda", Greedy)
    text = program_for(*platforms)
    assert re.findall(r"tensor<(\d+)xui8>", text.partition("custom_call")[2]).count(str(scratch)) >= 1
    assert f"@{pybaracuda.jax.TARGET}(" in text


def test_scratch_is_that_of_the_installed_libraries() -> None:
    sizes = [NEEDED]
    with contextlib.suppress(pybaracuda.BackendUnavailableError):
        # No driver is needed to ask.
        sizes.append(_kernel.Kernel(AffineGridBackwardDescriptor(2, 30, 40), "cuda").workspace_size)
        assert f"{max(sizes)}xui8" in program_for("cpu", "cuda")
    assert f"{NEEDED}xui8" in program_for("cpu")


def test_without_the_cuda_library_programs_for_it_take_its_own_scratch(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Only that library knows how much it wants; on the CPU such a program has the same bits."""
    from pybaracuda.jax import _primitive

    monkeypatch.setattr(_primitive, "_cuda", lambda: None)
    for platforms in (("cuda",), ("cpu", "cuda")):
        text = program_for(*platforms)
        assert f"@{pybaracuda.jax.TARGETS[1]}(" in text
        assert f"@{pybaracuda.jax.TARGET}(" not in text
    assert f"@{pybaracuda.jax.TARGET}(" in program_for("cpu")
    x, grid = rng.standard_normal((2, 3, 6, 7)).astype(np.float32), rng.uniform(-1, 1, (2, 4, 5, 2)).astype(np.float32)
    grad = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in pybaracuda.jax.TARGETS]
    program = export.export(
        jax.jit(lambda g, *y: jax.vjp(pybaracuda.jax.grid_sample, *y)[1](g)),
        platforms=["cpu", "cuda"],
        disabled_checks=checks,
    )(grad, x, grid)
    with jax.default_device(jax.devices("cpu")[0]):
        found = export.deserialize(program.serialize()).call(grad, x, grid)
    for one, other in zip(found, pybaracuda.grid_sample_backward(grad, x, grid), strict=True):
        assert_same_bits(np.asarray(one), other)
