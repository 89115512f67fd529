# SPDX-License-Identifier: Apache-2.0
"""One ABI table: generated files are fresh, an edit by hand shows, the built libraries hold exactly what it says."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

import pybaracuda
from pybaracuda import _abi
from pybaracuda._check.abi_calls import Library, symbols
from tools import check_exports
from tools.abi import c_names, generate, spec

ROOT = Path(__file__).resolve().parent.parent


def test_generated_files_are_fresh() -> None:
    assert generate.check() == []


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The generated files in a tree of their own, which the generator takes for the repository."""
    for path in (*generate.generated_files(), *generate.pages()):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.check() == []
    return tmp_path


GENERATED = sorted(str(path.relative_to(ROOT)) for path in generate.generated_files())


@pytest.mark.parametrize("name", GENERATED)
def test_edit_by_hand_is_found(copy: Path, name: str) -> None:
    path = copy / name
    text = path.read_text()
    path.write_text(text.replace("SPDX", "SPXD", 1))
    assert generate.check() == [f"{name}: edited by hand (its seal does not match its text)"]
    path.write_text(text.split("\n", 1)[1])
    assert generate.check() == [f"{name}: no seal line"]
    path.unlink()
    assert generate.check() == [f"{name}: missing"]
    # Sealed again after the edit: the seal holds, the text is not what the table says.
    mark = "#" if name.endswith(".py") else "//"
    path.write_text(generate.seal(mark, "\n".join(text.split("\n")[1:]).replace("SPDX", "SPXD", 1)))
    assert generate.check() == [f"{name}: out of date"]


def test_stray_file_is_found(copy: Path) -> None:
    (copy / "native/abi/roi_pool_by_hand.h").write_text("// not in the table\n")
    assert generate.check() == ["native/abi/roi_pool_by_hand.h: not in the spec"]


@pytest.mark.parametrize("name", ["README.md", "docs/operators.md"])
def test_table_of_operators_by_hand_is_found(copy: Path, name: str) -> None:
    page = copy / name
    page.write_text(page.read_text().replace("| `roi_align`", "| `roi_line`", 1))
    assert generate.check() == [f"{name}: its table of operators is out of date"]


def test_changed_table_is_found(copy: Path) -> None:
    changed = spec.OPERATORS[:-1]
    assert c_names.abi_hash(changed) != c_names.abi_hash(spec.OPERATORS)
    said = generate.check(changed)
    assert "include/baracuda_kernels.h: out of date" in said
    assert "pybaracuda/_abi.py: out of date" in said
    assert "README.md: its table of operators is out of date" in said
    assert "docs/operators.md: its table of operators is out of date" in said


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_hash_is_the_same_in_table_header_and_library(backend: str) -> None:
    header = (pybaracuda.include_dir() / "baracuda_kernels.h").read_text()
    in_header = re.search(r"ABI_HASH UINT64_C\((0x[0-9a-f]{16})\)", header)
    assert in_header is not None
    assert int(in_header[1], 16) == _abi.ABI_HASH == c_names.abi_hash(spec.OPERATORS)
    # Neither a driver nor a device is needed to ask.
    library = _library(backend)
    assert library.functions.baracuda_kernels_abi_hash() == _abi.ABI_HASH
    assert library.functions.baracuda_kernels_backend_name() == backend.encode()


def _library(backend: str) -> Library:
    try:
        return Library(backend)
    except pybaracuda.BackendUnavailableError:
        if backend == "cpu":
            raise
        pytest.skip("no CUDA")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_library_exports_exactly_the_header(backend: str) -> None:
    _library(backend)
    header, path = pybaracuda.include_dir() / "baracuda_kernels.h", pybaracuda.library_path(backend)
    assert check_exports.main([str(header), str(path)]) == 0


def test_header_declares_what_the_table_says() -> None:
    declared = check_exports.header_functions((ROOT / "include/baracuda_kernels.h").read_text())
    verbs = ("run", "can_implement", "workspace_size", "run_packed")
    expected = {f"baracuda_kernels_{symbol.name}_{verb}" for symbol in symbols() for verb in verbs}
    library_wide = ("last_error", "version", "abi_hash", "backend_name", "cpu_threads", "cpu_isa")
    library_wide += ("last_path", "set_interrupt_check")
    expected |= {f"baracuda_kernels_{name}" for name in library_wide}
    assert declared == expected


def test_block_format_follows_the_parameters() -> None:
    codes = {"i32": "i", "i64": "q", "f32": "f", "f64": "d", "f16": "H", "bf16": "H"}
    codes |= {"b8": "B", "b16": "H", "b32": "I", "b64": "Q", "b128": "QQ"}
    for symbol in symbols():
        expected = "@"
        for parameter in symbol.operator.parameters:
            ctype = parameter.ctype if isinstance(parameter, _abi.Scalar) else "pointer"
            expected += codes.get(symbol.variant.types["T"] if ctype == "VALUE" else ctype, "P")
        assert symbol.variant.block_format == expected + "PNP"
        struct.calcsize(symbol.variant.block_format)
