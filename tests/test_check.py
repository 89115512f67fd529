# SPDX-License-Identifier: Apache-2.0
"""The command that proves the bits on a user's machine: what it runs, says and answers; the bits are test_bits.py's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pybaracuda
from pybaracuda import _abi
from pybaracuda._check import cases, children, report, runs, vectors
from pybaracuda._check.memory import BOUNDARY, HostRegions
from pybaracuda._check.runs import Configuration

PACKAGE = Path(pybaracuda.__file__).parent
PORTABLE = Configuration("cpu-portable", "cpu", "portable code", {"BARACUDA_CPU_ISA": "portable"})
NOWHERE = Configuration("cuda-99", "cuda", "a GPU that is not there", device=99)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        timeout=300,
        check=False,
    )


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One configuration, so that a check is short."""
    monkeypatch.setattr(runs, "cpu_configurations", lambda: [PORTABLE])


def test_the_quick_check_passes_here() -> None:
    done = python("-m", "pybaracuda", "check", "--quick", "--backend", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert f"pybaracuda {pybaracuda.__version__}" in lines[0]
    assert str(pybaracuda.library_path("cpu")) in lines[1]
    configurations = runs.cpu_configurations()
    for configuration in configurations:
        assert any(
            line.startswith(f"cpu, {configuration.about} ") and line.endswith("all bits equal") for line in lines
        )
    count = len(cases.sample_names())
    assert lines[-1].startswith(f"All bits equal: {count * len(configurations)} results")


def test_the_configurations_differ_in_what_they_say() -> None:
    for configurations in (runs.cpu_configurations(), runs.cuda_configurations(0) + runs.cuda_configurations(1)):
        assert len({each.name for each in configurations}) == len(configurations)
        assert len({(each.about, each.device) for each in configurations}) == len(configurations)


def test_one_wrong_bit_is_reported_with_its_case(
    few: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    committed = vectors.committed()
    name = cases.sample_names()[100]
    output, right = next(iter(committed[name].items()))
    wrong = f"{int(right, 16) ^ 1:016x}"
    changed = tmp_path / "bits.txt"
    changed.write_text(vectors.document({**committed, name: {**committed[name], output: wrong}}))
    monkeypatch.setattr(vectors, "VECTORS", changed)
    assert report.main(quick=True, backend="cpu") == 1
    printed = capsys.readouterr().out
    assert f"1 OUTPUTS DIFFER, first {name}: {output} is {right}, committed {wrong}" in printed
    assert cases.description_of(name) in printed
    assert "Please report" in printed
    assert "all bits equal" not in printed.lower()
    assert pybaracuda.check(quick=True, backend="cpu") is False


def test_what_cannot_run_is_said_and_is_no_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "cpu_configurations", lambda: [PORTABLE, NOWHERE])
    assert report.main(quick=True, backend="cpu") == 2
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("cpu, portable code ") and line.endswith("all bits equal") for line in lines)
    assert any("0 cases: COULD NOT RUN to the end: " in line and "before the first case" in line for line in lines)
    with pytest.raises(RuntimeError, match="what was printed says why"):
        pybaracuda.check(quick=True, backend="cpu")


def test_a_child_that_dies_is_named_by_its_signal() -> None:
    assert children._ending(-11, "pad_ex_f32/crop", "") == "ended by SIGSEGV after pad_ex_f32/crop"
    assert children._ending(1, "", "Traceback\nOSError: no memory\n") == "OSError: no memory (before the first case)"


def test_a_backend_that_is_not_here_is_an_error() -> None:
    with pytest.raises(ValueError, match="'rocm'; wanted"):
        pybaracuda.check(backend="rocm")
    if pybaracuda.backend_available("cuda"):
        return
    done = python("-m", "pybaracuda", "check", "--quick", "--backend", "cuda")
    assert done.returncode == 2
    assert "error: nothing could be checked: " in done.stderr
    assert (pybaracuda.backend_problem("cuda") or "") in done.stderr


def test_the_sample_reaches_every_operator_dtype_and_problem() -> None:
    sampled = cases.sample_names()
    assert [case.name for case in cases.sample()] == sampled
    for operator in _abi.OPERATORS.values():
        for token in operator.variants:
            assert sum(name.startswith(f"{operator.name}_{token}/") for name in sampled) >= 1
    reached = {name.partition("/")[2] for name in sampled}
    assert {name.partition("/")[2] for name in cases.names()} - reached == set()


def test_the_committed_file_holds_the_cases_in_their_order() -> None:
    committed = vectors.committed()
    assert list(committed) == cases.names()
    assert vectors.document(committed) == vectors.VECTORS.read_text()
    assert {len(found) for hashes in committed.values() for found in hashes.values()} == {vectors.DIGITS}
    assert cases.description_of("pad_reflect_f32/rank-8") == "eight axes"
    assert cases.description_of("pad_reflect_f32/nothing") == ""


def test_it_needs_numpy_alone() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['ml_dtypes', 'tqdm', 'verify', 'torch']))\n"
        "sys.argv = ['child', 'cpu', '--quick']\n"
        "from pybaracuda._check import child, report\n"
        "raise SystemExit(child.main())"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert [vectors.parsed(line)[0] for line in done.stdout.splitlines()] == cases.sample_names()


def test_regions_lie_where_they_are_asked_to() -> None:
    regions = HostRegions({"a": 3, "b": 0, "c": 300}, {"a": 4, "c": 2})
    assert (regions.address("a") % BOUNDARY, regions.address("c") % BOUNDARY) == (4, 2)
    assert regions.address("c") >= regions.address("a") + 3
    regions.fill("c", 7)
    regions.put("a", regions.part(regions.read(), "c")[:3])
    assert regions.part(regions.read(), "a").tolist() == [7, 7, 7]


# As much of a driver as a check needs, with two devices whose memory is the host's. In what is read from the second
# the lowest bit of every byte is flipped.
DRIVER = """
#include <stdlib.h>
#include <string.h>
static int current, retained;
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return index < 2 ? 0 : 101; }
int cuDeviceGetName(char* name, int size, int device) { strcpy(name, device ? "Broken" : "Sound"); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { retained = device; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void* context) { current = retained; return 0; }
int cuCtxPopCurrent_v2(void** context) { return 0; }
int cuCtxGetDevice(int* device) { return 201; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(unsigned long long* address, size_t size) {
  *address = (unsigned long long)aligned_alloc(256, size);
  return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t size) { memcpy((void*)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t size) {
  memcpy(to, (const void*)from, size);
  for (size_t i = 0; current && i < size; i += 1) ((char*)to)[i] ^= 1;
  return 0;
}
int cuGetErrorName(int status, const char** name) { *name = "CUDA_ERROR"; return 0; }
"""


def test_every_gpu_is_checked_by_itself(tmp_path: Path) -> None:
    """Without one: the CPU library stands for the CUDA library, a few lines of C for the driver."""
    compiler = next((path for path in map(shutil.which, ("cc", "gcc", "c++", "g++")) if path), None)
    assert compiler is not None, "a C compiler is needed, as to build the library"
    (tmp_path / "driver.c").write_text(DRIVER)
    command = [compiler, "-x", "c", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1"]
    subprocess.run(command, check=True, cwd=tmp_path)
    for path in (path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".txt")):
        link = tmp_path / "pybaracuda" / path.relative_to(PACKAGE)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    (tmp_path / "pybaracuda" / "lib").mkdir()
    # What a library says of itself is found in it first, everything else in the one that it was linked with.
    real = pybaracuda.library_path("cpu")
    (tmp_path / "named.c").write_text('const char* baracuda_kernels_backend_name(void) { return "cuda"; }\n')
    named = tmp_path / "pybaracuda" / "lib" / "libbaracuda_kernels.so"
    command = [compiler, "-shared", "-fPIC", "named.c", "-o", str(named), "-Wl,--no-as-needed", str(real)]
    subprocess.run([*command, f"-Wl,-rpath,{real.parent}"], check=True, cwd=tmp_path)
    (tmp_path / "pybaracuda" / "lib" / "libbaracuda_kernels_cpu.so").symlink_to(pybaracuda.library_path("cpu"))
    done = subprocess.run(
        [sys.executable, "-m", "pybaracuda", "check", "--quick", "--backend", "cuda"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    lines = {line.partition("  ")[0]: line for line in done.stdout.splitlines() if line.startswith("cuda ")}
    assert len(lines) == 4
    for about in ("scratch given", runs.LOOSE):
        assert lines[f"cuda 0: Sound, sm_90, {about}"].endswith("all bits equal")
        # All but the cases whose outputs are empty.
        assert "OUTPUTS DIFFER, first roi_align_f32/typical" in lines[f"cuda 1: Broken, sm_90, {about}"]
