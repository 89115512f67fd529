# SPDX-License-Identifier: Apache-2.0
"""The package as such: what it exports, loads, refuses to load, prints and imports; no result is judged here."""

from __future__ import annotations

import ast
import ctypes
import inspect
import os
import platform
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from operators import RECORDS, joined

import pybaracuda
from pybaracuda import _abi, _library
from pybaracuda._check.runs import cpu_isas
from tools import wheel

PACKAGE = Path(pybaracuda.__file__).parent
ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS: dict[str, str] = joined(record.functions for record in RECORDS)


def python(code: str, **variables: str) -> str:
    """What a fresh interpreter prints for some code."""
    environment = {**os.environ, **variables, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, *code.split()] if code.startswith("-m ") else [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- names and texts


def test_every_public_name_is_there_and_listed() -> None:
    assert len(set(pybaracuda.__all__)) == len(pybaracuda.__all__)
    for name in pybaracuda.__all__:
        assert getattr(pybaracuda, name) is not None, name
    public = {
        name
        for name, value in vars(pybaracuda).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name not in ("annotations", "TYPE_CHECKING")
    }
    assert public == set(pybaracuda.__all__) - {"__version__"}
    # What takes `out` is an operator's.
    functions = {name for name in public if inspect.isfunction(getattr(pybaracuda, name))}
    of_operators = {name for name in functions if "out" in inspect.signature(getattr(pybaracuda, name)).parameters}
    assert of_operators == set(FUNCTIONS), "a record of tests/operators lacks a function, or has one too many"
    with pytest.raises(AttributeError, match="nothing"):
        _ = pybaracuda.nothing


def test_every_public_thing_is_documented() -> None:
    for name in pybaracuda.__all__:
        value = getattr(pybaracuda, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
            for member, attribute in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (inspect.isfunction(attribute) or isinstance(attribute, property)):
                    assert inspect.getdoc(attribute), (name, member)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_state_their_contract(name: str) -> None:
    function = getattr(pybaracuda, name)
    text = inspect.getdoc(function)
    assert text is not None
    for section in ("Parameters", "Returns", "Raises", "Notes"):
        assert f"{section}\n{'-' * len(section)}\n" in text, section
    assert "threads" in text
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        assert parameter.name in text
    for keyword in ("out", "stream"):
        assert signature.parameters[keyword].kind is inspect.Parameter.KEYWORD_ONLY
        assert signature.parameters[keyword].default is None


def test_keywords_are_torchs_where_torch_has_them() -> None:
    for name, keywords in FUNCTIONS.items():
        assert list(inspect.signature(getattr(pybaracuda, name)).parameters) == [*keywords.split(), "out", "stream"]


def test_the_package_is_the_library() -> None:
    """No harness, demo or test travels with it: folders of the source package are those that a wheel may have."""
    # Compiled files of modules that are gone may stay behind in a source tree.
    files = [path.relative_to(PACKAGE).parts for path in PACKAGE.rglob("*") if path.is_file()]
    folders = {parts[0] for parts in files if len(parts) > 1 and "__pycache__" not in parts}
    assert folders <= set(wheel.PACKAGE_FOLDERS)
    outside = {"benchmarks", "examples", "matplotlib", "tests", "tools", "tqdm", "verify"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            # The one that may find it missing.
            taken = {"tqdm"} if path.name == "progress.py" else set()
            assert not {name.partition(".")[0] for name in names} & (outside - taken), path


def test_a_wheel_with_more_than_the_library_is_refused(tmp_path: Path) -> None:
    held = [f"pybaracuda/lib/{name}" for name in wheel.LIBRARIES]
    held += [
        f"pybaracuda/{name}"
        for name in ("_check/bits.txt", "include/baracuda_kernels.h", "py.typed", "__init__.py", "segment/csr.py")
    ]
    held += [f"pybaracuda/lib/cmake/baracuda_kernels/baracuda_kernels{end}.cmake" for end in wheel.CMAKE_FILES]
    foreign = ["pybaracuda/bench/main.py", "verify/judge.py", "benchmarks/run.py"]
    path = tmp_path / "pybaracuda.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*held, *foreign, "pybaracuda-0.1.0.dist-info/METADATA"):
            archive.writestr(name, "")
    assert wheel.content_faults(path) == [f"{name} does not belong in it" for name in foreign]


@pytest.mark.parametrize("program", ["benchmarks/run.py", "examples/photo/run.py"])
def test_programs_outside_run_on_the_package_that_the_interpreter_has(tmp_path: Path, program: str) -> None:
    """One that is installed comes before the source tree's, also where the program is started from another folder."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "pybaracuda").symlink_to(PACKAGE)
    path = ROOT / program
    code = f"import runpy; runpy.run_path({str(path)!r}); import pybaracuda; print(pybaracuda.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    for arguments, wanted in ((["-c", code], str(tmp_path / "site")), ([str(path), "--help"], f"usage: {program}")):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(wanted)


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


# ---- imports


def test_importing_and_running_brings_in_no_framework() -> None:
    printed = python(
        "import sys, numpy, pybaracuda\n"
        "pybaracuda.roi_align(numpy.ones((1, 1, 4, 4), 'f4'), numpy.zeros((1, 5), 'f4'), 2)\n"
        "pybaracuda.backend_available('cuda')\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'torch', 'jax', 'cupy', 'cuda', 'ml_dtypes', 'matplotlib'}))"
    )
    assert printed.strip() == "[]"


def test_importing_loads_no_library() -> None:
    printed = python(
        "import pybaracuda\nprint([line for line in open('/proc/self/maps') if 'baracuda_kernels' in line])"
    )
    assert printed.strip() == "[]"


# ---- libraries


def test_paths() -> None:
    path = pybaracuda.library_path("cpu")
    assert path.name == "libbaracuda_kernels_cpu.so"
    assert path.is_file()
    header = pybaracuda.include_dir() / "baracuda_kernels.h"
    assert f"UINT64_C({_abi.ABI_HASH:#018x})" in header.read_text()
    for function in (pybaracuda.library_path, pybaracuda.backend_problem, pybaracuda.raw):
        with pytest.raises(ValueError, match="'rocm'; wanted 'cpu' or 'cuda'"):
            function("rocm")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = _library.load("cpu").path
    monkeypatch.setattr(pybaracuda, "__path__", [str(tmp_path)])
    with pytest.raises(pybaracuda.BackendUnavailableError, match=r"the cpu library is not installed: .*_cpu\.so"):
        pybaracuda.library_path("cpu")
    with pytest.raises(pybaracuda.BackendUnavailableError, match=r"libbaracuda_kernels\.so .*BARACUDA_CUDA=ON"):
        pybaracuda.library_path("cuda")
    with pytest.raises(FileNotFoundError, match=r"baracuda_kernels\.h"):
        pybaracuda.include_dir()
    # An editable install has two folders; whichever holds the library will do.
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    shutil.copy(library, other / "lib" / "libbaracuda_kernels_cpu.so")
    monkeypatch.setattr(pybaracuda, "__path__", [str(tmp_path), str(other)])
    assert pybaracuda.library_path("cpu") == other / "lib" / "libbaracuda_kernels_cpu.so"


@pytest.fixture
def compiler() -> str:
    found = next((path for path in map(shutil.which, ("cc", "gcc", "c++", "g++")) if path), None)
    assert found is not None, "a C compiler is needed, as to build the library"
    return found


def test_a_library_of_another_build_is_refused(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "stale.c"
    source.write_text(
        "#include <stdint.h>\n"
        'const char* baracuda_kernels_last_error(void) { return ""; }\n'
        'const char* baracuda_kernels_version(void) { return "0.0.0"; }\n'
        'const char* baracuda_kernels_backend_name(void) { return "cpu"; }\n'
        "uint64_t baracuda_kernels_abi_hash(void) { return UINT64_C(0x1234); }\n"
    )
    library = tmp_path / "stale.so"
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    with pytest.raises(pybaracuda.BackendUnavailableError) as caught:
        _library.Library("cpu", library)
    text = str(caught.value)
    assert str(library) in text
    assert "0x0000000000001234" in text
    assert f"{_abi.ABI_HASH:#018x}" in text


def test_what_is_no_library_of_ours_is_refused(compiler: str, tmp_path: Path) -> None:
    text_file = tmp_path / "text.so"
    text_file.write_text("not a library")
    with pytest.raises(pybaracuda.BackendUnavailableError, match="the cpu library does not load"):
        _library.Library("cpu", text_file)
    source = tmp_path / "other.c"
    source.write_text("int answer(void) { return 42; }\n")
    other = tmp_path / "other.so"
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", str(source), "-o", str(other)], check=True)
    with pytest.raises(pybaracuda.BackendUnavailableError, match="is not a baracuda_kernels library"):
        _library.Library("cpu", other)


def test_raw_has_every_signature() -> None:
    raw = pybaracuda.raw("cpu")
    assert pybaracuda.raw("cpu") is raw
    counts = {"run": 3, "can_implement": 0, "workspace_size": 0, "run_packed": 0}
    for operator in _abi.OPERATORS.values():
        tensors = sum(isinstance(parameter, _abi.Tensor) for parameter in operator.parameters)
        values = sum(parameter.name == "value" for parameter in operator.parameters)
        for variant in operator.variants.values():
            for verb, extra in counts.items():
                function = getattr(raw, f"baracuda_kernels_{operator.name}_{variant.token}_{verb}")
                wanted = len(operator.parameters) + extra
                if verb == "can_implement" and operator.after_workspace:
                    wanted += 2  # the workspace that a frozen signature has there
                if verb == "workspace_size":
                    wanted -= tensors + values
                assert len(function.argtypes) == (1 if verb == "run_packed" else wanted)
                assert function.restype is (ctypes.c_size_t if verb == "workspace_size" else ctypes.c_int32)
    assert raw.baracuda_kernels_backend_name() == b"cpu"
    assert raw.baracuda_kernels_abi_hash() == _abi.ABI_HASH
    with pytest.raises(ctypes.ArgumentError):
        raw.baracuda_kernels_roi_align_f32_workspace_size(1, 1, 1, 1, 1, 1, 1, "1", 0, 0)


def test_both_libraries_may_be_loaded_together(tmp_path: Path) -> None:
    # They export one symbol set; each must go on calling its own.
    if "library is not installed" in (pybaracuda.backend_problem("cuda") or ""):
        with pytest.raises(pybaracuda.BackendUnavailableError, match="library is not installed"):
            pybaracuda.raw("cuda")
        return
    cuda = pybaracuda.raw("cuda")
    for _ in range(2):
        assert cuda.baracuda_kernels_backend_name() == b"cuda"
        assert pybaracuda.raw("cpu").baracuda_kernels_backend_name() == b"cpu"


def test_versions_agree() -> None:
    library = _library.load("cpu").version
    assert pybaracuda.__version__.split("+")[0] == library
    listfile = PACKAGE.parent / "CMakeLists.txt"
    if listfile.is_file():
        assert f"VERSION {library}" in listfile.read_text()


# ---- the machine and the command line


def instruction_sets() -> list[str]:
    """What the processor says of itself, read apart from the library."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["portable"]
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    found = ["portable"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append("avx2")
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
            found.append("avx512")
    return found


def test_check_runs_every_instruction_set_of_the_processor() -> None:
    code = "from pybaracuda._check.runs import cpu_isas; print(*cpu_isas())"
    assert cpu_isas() == instruction_sets()
    for bound in ("", "portable", "avx2", "avx512"):
        assert python(code, BARACUDA_CPU_ISA=bound).split() == instruction_sets()


def test_the_instruction_set_can_be_bounded() -> None:
    order = ["portable", "avx2", "avx512"]
    best = order.index(instruction_sets()[-1])
    code = "from pybaracuda import _library; print(_library.load('cpu').cpu_isa)"
    for bound in order:
        assert python(code, BARACUDA_CPU_ISA=bound).strip() == order[min(best, order.index(bound))]
    for nothing in ("", "sse", "AVX2"):
        assert python(code, BARACUDA_CPU_ISA=nothing).strip() == order[best]


ALLOWED_THREADS = min(len(os.sched_getaffinity(0)), 256)
THREADS_OF_TEXT = {
    **{"1": 1, "3": 3, "007": 7, "256": 256, "257": 256, "9" * 40: 256},
    **dict.fromkeys(("", "0", "-2", "+4", " 4", "4 ", "4abc", "1e3", "0x10", "3.0", "many", "\u0664"), ALLOWED_THREADS),
}
USED_THREADS = """
import os, sys
import numpy as np
import pybaracuda
from pybaracuda import _library
library = _library.load("cpu")
before = library.cpu_threads
# Enough for the pool to start.
pybaracuda.pad(np.zeros((200, 1000), np.float32), (1, 1), (1, 1))
print(before, library.cpu_threads, len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("text", THREADS_OF_TEXT)
def test_the_thread_count_follows_its_variable(text: str) -> None:
    wanted = THREADS_OF_TEXT[text]
    # NumPy's own BLAS would start threads too.
    before, after, running = map(int, python(USED_THREADS, BARACUDA_NUM_THREADS=text, OPENBLAS_NUM_THREADS="1").split())
    assert (before, after, running) == (wanted, wanted, wanted)


NONSENSE = {"1e3": True, "-2": True, "257": True, "3": False, "007": False, "": False}


@pytest.mark.parametrize(("text", "is_nonsense"), NONSENSE.items())
def test_info_says_that_the_thread_variable_is_nonsense(text: str, is_nonsense: bool) -> None:
    printed = python("-m pybaracuda info", BARACUDA_NUM_THREADS=text)
    assert f"up to {THREADS_OF_TEXT[text]} threads" in printed
    assert (f"BARACUDA_NUM_THREADS is {text!r}" in printed) == is_nonsense


def test_info_lists_everything() -> None:
    printed = python("-m pybaracuda info")
    assert pybaracuda.__version__ in printed
    assert str(pybaracuda.library_path("cpu")) in printed
    assert f"available: {_library.load('cpu').cpu_isa} code" in printed
    problem = pybaracuda.backend_problem("cuda")
    assert (problem or "available: ") in printed
    assert "python -m pybaracuda check" in printed
    lines = [line.split() for line in printed.splitlines()]
    for operator in _abi.OPERATORS.values():
        for variant in operator.variants.values():
            assert any(line[:3] == [operator.name, variant.token, "yes"] for line in lines), variant


def test_info_works_without_any_library(tmp_path: Path) -> None:
    # Links to the modules, and no folder lib beside them.
    package = tmp_path / "pybaracuda"
    package.mkdir()
    for path in PACKAGE.rglob("*.py"):
        link = package / path.relative_to(PACKAGE)
        link.parent.mkdir(exist_ok=True, parents=True)
        link.symlink_to(path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pybaracuda", "info"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cpu: not available: the cpu library is not installed" in done.stdout
    assert "cuda: not available: the cuda library is not installed" in done.stdout
    assert "roi_align" in done.stdout


def ended_without_a_word(*command: str) -> None:
    """As after `| head -1`, once head has what it wanted."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    # With it a help is written at once by argparse, which hides that it could not.
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    "arguments",
    [["info"], ["config", "--cflags"], ["check", "--quick", "--backend", "cpu"], ["--help"], ["config", "--help"]],
    ids=" ".join,
)
def test_a_command_whose_reader_went_away_ends_without_a_word(arguments: list[str]) -> None:
    ended_without_a_word("pybaracuda", *arguments)


def test_so_does_the_list_of_pytorchs_operators(torch: ModuleType) -> None:
    ended_without_a_word("pybaracuda.torch", "--list")


@pytest.mark.parametrize(
    "arguments", [[], ["nothing"], ["demo"], ["bench"], ["info", "--loud"], ["check", "--backend", "rocm"]], ids=str
)
def test_a_wrong_command_says_how_to_call_it(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "pybaracuda", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert "usage: python -m pybaracuda" in done.stderr


def test_modules_say_what_belongs_in_them() -> None:
    folders = (PACKAGE, *(ROOT / name for name in ("verify", "benchmarks", "examples")))
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        lines: list[Any] = path.read_text().splitlines()
        start = 2 if lines[0].startswith("# seal-sha256") else 0  # the seal and the notice of a generated file
        assert lines[start] == "# SPDX-License-Identifier: Apache-2.0", path.name
        assert lines[start + 1].startswith('"""'), path.name
