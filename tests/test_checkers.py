# SPDX-License-Identifier: Apache-2.0
"""The checkers in tools/ must catch what they are for: each gets planted faults, and one clean case that must pass."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools import check_exports, check_ptx, check_source, commands, compare_code, wheel

ROOT = Path(__file__).resolve().parent.parent

CLEAN_PTX = """
.version 9.0
.target sm_90
.address_size 64

.visible .entry _ZN8baracuda9roi_align6gatherIfEEvPT_(
\t.param .u64 .ptr .align 1 param_0
)
{
\t.reg .pred %p<3>;
\tld.param.u64 %rd1, [param_0];
\t// atom.global.add.f32 in a comment is no instruction
\t/* nor is red.add.f64
\t   here */
\tadd.rn.f32 %f1, %f2, %f3;
\tredux.sync.add.s32 %r1, %r2, -1;
\tatom.global.add.u32 %r3, [%rd1], 1;
\tred.global.add.u64 [%rd1], %rd2;
\tatom.global.exch.b32 %r4, [%rd1], %r3;
\tret;
}
"""


def planted(instruction: str) -> str:
    return CLEAN_PTX.replace("\tret;", f"\t{instruction}\n\tret;")


def run_check_ptx(folder: Path, ptx: str, allow: str | None = None) -> int:
    (folder / "kernels.ptx").write_text(ptx)
    arguments = [str(folder / "kernels.ptx")]
    if allow is not None:
        (folder / "allow.txt").write_text(allow)
        arguments = ["--allow-cas", str(folder / "allow.txt"), *arguments]
    return check_ptx.main(arguments)


def test_ptx_clean_passes(tmp_path: Path) -> None:
    assert run_check_ptx(tmp_path, CLEAN_PTX) == 0


@pytest.mark.parametrize(
    "instruction",
    [
        "atom.global.add.f32 %f4, [%rd1], %f1;",
        "red.global.add.f32 [%rd1], %f1;",
        "@%p1 red.global.add.f64 [%rd1], %fd1;",
        "@!%p1 atom.add.f64 %fd1, [%rd1], %fd2;",
        "red.relaxed.gpu.global.add.noftz.f16 [%rd1], %rs1;",
        "atom.global.gpu.relaxed.add.noftz.f16x2 %r1, [%rd1], %r2;",
        "red.global.add.noftz.bf16 [%rd1], %rs1;",
        "red.global.add.noftz.bf16x2 [%rd1], %r1;",
        "atom.global.v4.f32.add {%f1,%f2,%f3,%f4}, [%rd1], {%f1,%f2,%f3,%f4};",
        "red.global.add.L2::cache_hint.v2.f32 [%rd1], {%f1,%f2}, %rd9;",
        "atom.shared::cluster.add.f32 %f1, [%r1], %f2;",
        "multimem.red.relaxed.sys.global.add.f32 [%rd1], %f1;",
        "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%r1,%r2,%r3,%r4}, [%rd1];",
        "multimem.ld_reduce.global.min.e5m2x4 %r1, [%rd1];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 64;",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd1, {%r1}], [%r2];",
        "mov.u32 %r1, 0;red.global.add.f32 [%rd1], %f1;",
        "{ red.shared.max.f32 [%rd1], %f1; }",
    ],
)
def test_ptx_float_atomic_is_caught(tmp_path: Path, instruction: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_check_ptx(tmp_path, planted(instruction)) == 1
    message = capsys.readouterr().err
    assert "_ZN8baracuda9roi_align6gatherIfEEvPT_: float atomic" in message
    # No allow-list for compare-and-swap excuses it.
    assert run_check_ptx(tmp_path, planted(instruction), allow="gather # reason\n") == 1


@pytest.mark.parametrize(
    "instruction",
    [
        "atom.global.cas.b32 %r1, [%rd1], %r2, %r3;",
        "atom.acq_rel.gpu.global.cas.b64 %rd1, [%rd2], %rd3, %rd4;",
        "@%p1 atom.shared.cas.b16 %rs1, [%r1], %rs2, %rs3;",
    ],
)
def test_ptx_swap_must_be_named(tmp_path: Path, instruction: str, capsys: pytest.CaptureFixture[str]) -> None:
    ptx = planted(instruction)
    assert run_check_ptx(tmp_path, ptx) == 1
    assert "_ZN8baracuda9roi_align6gatherIfEEvPT_: compare-and-swap that" in capsys.readouterr().out
    assert run_check_ptx(tmp_path, ptx, allow="# the only one\nroi_align::gather # claims a slot\n") == 0
    assert "_ZN8baracuda9roi_align6gatherIfEEvPT_: compare-and-swap\n" in capsys.readouterr().out
    assert run_check_ptx(tmp_path, ptx, allow="ther # part of a name\n") == 1
    assert run_check_ptx(tmp_path, ptx, allow="pad::gather # another namespace\n") == 1


@pytest.mark.parametrize(
    ("allowed", "named"), [("count", True), ("segment::count", True), ("roi::count", False), ("3count", False)]
)
def test_ptx_names_in_unnamed_namespaces(allowed: str, named: bool) -> None:
    """nvcc's unnamed namespaces have names that may end in digits."""
    symbol = "_ZN8baracuda7segment24_GLOBAL__N__7_cuda_cu_835countENS_4KeysEPi"
    assert check_ptx.names_function(allowed, symbol) is named


def test_ptx_unused_permission_is_caught(tmp_path: Path) -> None:
    assert run_check_ptx(tmp_path, CLEAN_PTX, allow="gather # no longer swaps\n") == 1


@pytest.mark.parametrize("text", ["", ".version 9.0\n.target sm_90\n", "// .entry kernel( )\n"])
def test_ptx_nothing_to_check_is_an_error(tmp_path: Path, text: str) -> None:
    assert run_check_ptx(tmp_path, text) == 1


def test_ptx_finding_names_its_own_function() -> None:
    second = CLEAN_PTX.replace("_ZN8baracuda9roi_align6gatherIfEEvPT_", "second").replace(
        ".visible .entry", ".func (.param .b32 result)"
    )
    report = check_ptx.inspect(CLEAN_PTX + second.replace("\tret;", "\tred.global.add.f32 [%rd1], %f1;\n\tret;"))
    assert [finding.function for finding in report.float_atomics] == ["second"]
    assert report.functions == ("_ZN8baracuda9roi_align6gatherIfEEvPT_", "second")


HEADER = """
/* int baracuda_kernels_in_a_comment(void); */
#define baracuda_kernels_macro(x) \\
  baracuda_kernels_continued(x)
const char* baracuda_kernels_version(void); // baracuda_kernels_other()
int baracuda_kernels_pad_f32_run(int n,
                                 void* stream);
"""
DECLARED = {"baracuda_kernels_version", "baracuda_kernels_pad_f32_run"}


def test_exports_header_is_read() -> None:
    assert check_exports.header_functions(HEADER) == DECLARED


def test_exports_real_header_matches_the_generator() -> None:
    from tools.abi.c_names import prototypes
    from tools.abi.spec import OPERATORS

    text = (ROOT / "include" / "baracuda_kernels.h").read_text()
    generated = {check_exports._FUNCTION.search(line) for line in prototypes(OPERATORS)}
    assert check_exports.header_functions(text) >= {match.group(1) for match in generated if match}
    assert len(check_exports.header_functions(text)) > 100


def build_library(folder: Path, source: str, *flags: str) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler is not None, "the native build needs a C++ compiler, so the tests may"
    (folder / "library.cc").write_text(source)
    library = folder / "library.so"
    command = [compiler, "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,library.so", "library.cc"]
    command += ["-o", "library.so", *flags]
    subprocess.run(command, cwd=folder, check=True)
    return library


EXPORT = 'extern "C" __attribute__((visibility("default"))) '
BOTH = (
    f'{EXPORT}const char* baracuda_kernels_version() {{ return "1"; }}\n'
    f"{EXPORT}int baracuda_kernels_pad_f32_run(int n, void*) {{ return n; }}\n"
    "int hidden() { return 1; }\n"
)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BOTH, None),
        (
            BOTH + f"{EXPORT}int baracuda_kernels_stray() {{ return 1; }}\n",
            "exported but not declared: baracuda_kernels_stray",
        ),
        (BOTH + f"{EXPORT}int unrelated() {{ return 1; }}\n", "exported but not declared: unrelated"),
        (BOTH.splitlines()[0], "declared but not exported: baracuda_kernels_pad_f32_run"),
        (
            BOTH + '__attribute__((visibility("default"))) int stray_data = 1;\n',
            "exported but not declared: stray_data",
        ),
    ],
)
def test_exports_of_a_real_library(
    tmp_path: Path, source: str, message: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    library = build_library(tmp_path, source)
    (tmp_path / "header.h").write_text(HEADER)
    code = check_exports.main([str(tmp_path / "header.h"), str(library)])
    errors = capsys.readouterr().err
    if message is None:
        assert (code, errors) == (0, "")
    else:
        assert code == 1
        assert message in errors


def test_exports_foreign_library_is_caught(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "foreign").mkdir()
    build_library(tmp_path / "foreign", "", "-Wl,-soname,libcudart.so.13")
    library = build_library(tmp_path, BOTH, "-Wl,--no-as-needed", str(tmp_path / "foreign" / "library.so"))
    (tmp_path / "header.h").write_text(HEADER)
    assert check_exports.main([str(tmp_path / "header.h"), str(library)]) == 1
    assert "needs libcudart.so.13" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["library.so.0", "other.so"])
def test_exports_another_soname_is_caught(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = build_library(tmp_path, BOTH, f"-Wl,-soname,{name}")
    (tmp_path / "header.h").write_text(HEADER)
    assert check_exports.main([str(tmp_path / "header.h"), str(library)]) == 1
    assert f"its SONAME is {name}, and a linked program finds only library.so" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"])
def test_exports_system_libraries_are_allowed(name: str) -> None:
    assert check_exports.differences(set(), set(), [name]) == []


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcudart.so.13", "libgomp.so.1", "libomp.so", "libc.so.6.evil"])
def test_exports_other_libraries_are_not(name: str) -> None:
    assert len(check_exports.differences(set(), set(), [name])) == 1


def test_exports_empty_header_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "header.h").write_text("/* nothing */\n")
    assert check_exports.main([str(tmp_path / "header.h"), str(tmp_path / "missing.so")]) == 1


def build_wheel(folder: Path, soname: str = "", without: str = "") -> Path:
    """A file with the content of a wheel: its CPU library may have another SONAME, one of its files may be missing."""
    contents = {f"pybaracuda/{name}": "" for name in ("py.typed", "__init__.py", "_check/bits.txt")}
    contents |= {f"pybaracuda/lib/cmake/baracuda_kernels/baracuda_kernels{end}.cmake": "" for end in wheel.CMAKE_FILES}
    contents["pybaracuda/include/baracuda_kernels.h"] = HEADER
    made = folder / "pybaracuda.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, header in wheel.LIBRARIES.items():
            recorded = soname if soname and name.endswith("_cpu.so") else name
            exported = check_exports.header_functions((commands.ROOT / header).read_text())
            source = BOTH if "kernels" in name else "".join(f"{EXPORT}void {each}() {{}}\n" for each in exported)
            archive.write(build_library(folder, source, f"-Wl,-soname,{recorded}"), f"pybaracuda/lib/{name}")
        for name, text in contents.items():
            if not without or not name.endswith(without):
                archive.writestr(name, text)
    return made


def test_wheel_that_is_right(tmp_path: Path) -> None:
    assert wheel.content_faults(build_wheel(tmp_path)) == []


def test_wheel_without_a_file_of_the_cmake_package_is_caught(tmp_path: Path) -> None:
    (fault,) = wheel.content_faults(build_wheel(tmp_path, without="_targets-release.cmake"))
    assert fault.endswith("baracuda_kernels_targets-release.cmake is in it 0 times")


def test_wheel_whose_library_has_another_soname_is_caught(tmp_path: Path) -> None:
    (fault,) = wheel.content_faults(build_wheel(tmp_path, soname="libbaracuda_kernels_cpu.so.0"))
    assert "libbaracuda_kernels_cpu.so: its SONAME is libbaracuda_kernels_cpu.so.0" in fault


SOURCE = """// SPDX-License-Identifier: Apache-2.0
// What a valid problem is, and the sizes
// derived from it. No pointers.
#pragma once
"""


def test_form_of_this_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_source.main() == 0
    # Every place is still there.
    assert int(capsys.readouterr().out.split()[0]) > 80


@pytest.mark.parametrize(
    "text",
    [
        SOURCE,
        "#!/usr/bin/env bash\n" + SOURCE.replace("//", "#"),
        "// seal-sha256: 00\n// Generated by a tool.\n" + SOURCE,
        "/* SPDX-License-Identifier: Apache-2.0 */\n/* One thing,\n   at length. */\n#include <stdio.h>\n",
        SOURCE + "x" * 120 + "\n",
    ],
)
def test_form_that_is_right(text: str) -> None:
    assert check_source.faults(text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (SOURCE.split("\n", 1)[1], "1: wanted the licence line"),
        (SOURCE.replace("2.0", "2"), "1: wanted the licence line"),
        ("// SPDX-License-Identifier: Apache-2.0\n#pragma once\n", "1: wanted the licence line and a comment"),
        (SOURCE.replace(" No pointers.", " and"), "1: wanted a sentence"),
        (SOURCE + "x" * 121 + "\n", "5: 121 columns"),
        (SOURCE + "int x; \n", "5: a blank at the end"),
        (SOURCE + "\tint x;\n", "5: a tab"),
    ],
)
def test_fault_of_form_is_found(tmp_path: Path, text: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = check_source.faults(text)
    assert found.startswith(fault)
    (tmp_path / "native").mkdir()
    (tmp_path / "native/planted.h").write_text(text)
    (tmp_path / "CMakeLists.txt").write_text(SOURCE.replace("//", "#"))
    assert check_source.main(tmp_path) == 1
    assert capsys.readouterr().out == f"native/planted.h:{found}\n"


def test_pypi_compiler_requirement_is_the_same_in_both_places() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    group = next(line for line in text.splitlines() if line.startswith("nvcc = "))
    override = next(line for line in text.splitlines() if line.startswith("build.requires = "))
    assert group.split(" = ", 1)[1] == override.split(" = ", 1)[1]


OLD_LIBRARY = """
#include <math.h>
namespace { int twice(int a) { return a * 2; } }
extern "C" int kept(int a) { return twice(a) + 1; }
extern "C" double changed(double a) { return sqrt(a) + 1.0; }
extern "C" int renamed(int a) { return a / 3 + kept(a); }
extern "C" int calls(int a) { return renamed(a) * 5; }
"""


def compare_libraries(folder: Path, new: str, *options: str) -> int:
    built = []
    for name, text in (("old", OLD_LIBRARY), ("new", new)):
        (folder / name).mkdir(exist_ok=True)
        built.append(str(build_library(folder / name, text, "-O2", "-fPIC", "-fvisibility=default")))
    return compare_code.main([*options, *built])


def test_compare_code_same_in_another_order_passes(tmp_path: Path) -> None:
    head, kept, changed, renamed, calls = OLD_LIBRARY.strip().rsplit("\n", 4)
    declared = 'extern "C" int renamed(int);'
    assert compare_libraries(tmp_path, "\n".join([head, declared, calls, changed, kept, renamed])) == 0


def test_compare_code_changed_constant_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_libraries(tmp_path, OLD_LIBRARY.replace("a / 3", "a / 5")) == 1
    assert "different: renamed" in capsys.readouterr().out


def test_compare_code_rename_is_followed_into_calls(tmp_path: Path) -> None:
    new = OLD_LIBRARY.replace("renamed", "divided")
    assert compare_libraries(tmp_path, new) == 1
    assert compare_libraries(tmp_path, new, "--rename", r"^renamed\b", "divided") == 0


def test_compare_code_missing_function_is_found_unless_merged(tmp_path: Path) -> None:
    new = OLD_LIBRARY.replace('extern "C" double changed(double a) { return sqrt(a) + 1.0; }\n', "")
    assert compare_libraries(tmp_path, new) == 1
    assert compare_libraries(tmp_path, new, "--merged", "^changed") == 0


PTX_OF_FILE = """
.visible .entry _ZN8baracuda{unnamed}6gatherEPf(
\t.param .u64 _ZN8baracuda{unnamed}6gatherEPf_param_0
)
{{
$L__BB{number}_1:
\tld.param.u64 %rd1, [_ZN8baracuda{unnamed}6gatherEPf_param_0];
\t{instruction}
\tret;
}}
"""


@pytest.mark.parametrize(("instruction", "expected"), [("add.f32 %f1, %f2, %f3;", 0), ("sub.f32 %f1, %f2, %f3;", 1)])
def test_compare_code_ptx_of_two_files(tmp_path: Path, instruction: str, expected: int) -> None:
    old = PTX_OF_FILE.format(unnamed="21_GLOBAL__N__0ff_old_cu", number=0, instruction="add.f32 %f1, %f2, %f3;")
    new = PTX_OF_FILE.format(unnamed="22_GLOBAL__N__0ff_name_cu", number=7, instruction=instruction)
    (tmp_path / "old.ptx").write_text(old)
    (tmp_path / "new.ptx").write_text(new)
    assert compare_code.main([str(tmp_path / "old.ptx"), str(tmp_path / "new.ptx")]) == expected


def planted_cubin(code: bytes, registers: int = 24, shared: int = 64) -> bytes:
    """An ELF file with one kernel, as ptxas lays it out."""
    kernel = "_Z6gatherPf"
    names = b"\0.shstrtab\0" + f".text.{kernel}\0.nv.shared.{kernel}\0".encode()
    of_text, of_shared = names.index(b".text"), names.index(b".nv.shared")
    start = 64 + len(names) + len(code)
    progbits, no_bits, strings = 1, 8, 3
    headers = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, strings, 0, 0, 64, len(names), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", of_text, progbits, 6, 0, 64 + len(names), len(code), 0, registers << 24, 128, 0),
        struct.pack("<IIQQQQIIQQ", of_shared, no_bits, 3, 0, start, shared, 0, 2, 16, 0),
    ]
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", start) + bytes(10) + struct.pack("<HHH", 64, 4, 1)
    return head + names + code + b"".join(headers)


def test_compare_code_kernel_differs_by_code_order_registers_and_shared_memory() -> None:
    one, other = bytes(range(16)), bytes(range(16, 32))

    def code_of(cubin: bytes) -> compare_code.Code:
        (code,) = compare_code.kernels_of_cubin(cubin).values()
        return code

    def compared(cubin: bytes) -> compare_code.Comparison:
        return compare_code.compare({"gather": [code_of(planted_cubin(one + other))]}, {"gather": [code_of(cubin)]})

    assert compared(planted_cubin(one + other)).is_same
    assert compared(planted_cubin(other + one)).reordered == ["gather"]
    assert not compared(planted_cubin(other + one)).is_same
    assert compared(planted_cubin(one + one)).different == ["gather"]
    assert compared(planted_cubin(one + other, registers=32)).reordered == ["gather"]
    assert compared(planted_cubin(one + other, shared=128)).different == ["gather"]
