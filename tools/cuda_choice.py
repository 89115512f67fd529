# SPDX-License-Identifier: Apache-2.0
"""Whether the CUDA library is built: for which GPUs, and with which nvcc, the machine's own or PyPI's."""

import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.commands import SetupError, say
from tools.private_environment import Environment, install_sets

# One architecture keeps a source build short; its PTX runs on every later GPU.
DEFAULT_ARCHITECTURE = "90"

# nvcc 13 generates code for sm_75 and later; an older GPU cannot run the library at all.
OLDEST_ARCHITECTURE = 75

# The library's floor is a CUDA 13 driver, so an older toolkit on PATH is passed over for the one from PyPI.
OLDEST_NVCC = (13, 0)


@dataclass(frozen=True)
class Cuda:
    """How the native build treats CUDA: `definitions` are CMake cache entries, `summary` is the line for the user."""

    enabled: bool
    required: bool
    definitions: tuple[str, ...]
    summary: str


def cuda_request(value: str | None = None) -> str:
    """AUTO, ON or OFF: `value`, else the variable BARACUDA_CUDA, else AUTO."""
    text = value or os.environ.get("BARACUDA_CUDA") or "AUTO"
    if text.upper() not in ("AUTO", "ON", "OFF"):
        raise SetupError(f"BARACUDA_CUDA is {text!r}; it must be AUTO, ON or OFF.")
    return text.upper()


def driver_present() -> bool:
    """Whether an NVIDIA driver is installed (its library loads)."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def gpu_architectures() -> list[str]:
    """The architectures of this machine's GPUs that the library runs on, such as ["90"]; empty without a usable one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = set()
    for ordinal in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        # 75 and 76 are CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
        if (
            driver.cuDeviceGet(ctypes.byref(device), ordinal) == 0
            and driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device) == 0
            and driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device) == 0
        ):
            found.add(major.value * 10 + minor.value)
    return [str(number) for number in sorted(found) if number >= OLDEST_ARCHITECTURE]


def nvcc_version(nvcc: str) -> tuple[int, int] | None:
    """The release that an nvcc reports, None if it does not run."""
    try:
        result = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r"release (\d+)\.(\d+)", result.stdout)
    return (int(match.group(1)), int(match.group(2))) if result.returncode == 0 and match else None


def _installed_nvcc() -> tuple[str, tuple[int, int]] | None:
    """A CUDA toolkit of this machine that is new enough: CUDACXX, CUDA_HOME, CUDA_PATH, then PATH."""
    candidates = [os.environ.get("CUDACXX")]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        candidates.append(str(Path(home) / "bin" / "nvcc") if home else None)
    candidates.append("nvcc")
    for candidate in candidates:
        found = shutil.which(candidate) if candidate else None
        version = nvcc_version(found) if found else None
        if found and version and version >= OLDEST_NVCC:
            return found, version
        if found and version:
            say(f"passing over {found}: it is CUDA {version[0]}.{version[1]}, and 13.0 or newer is needed")
    return None


def pypi_toolkit(environment: Environment) -> Path:
    """The CUDA toolkit folder that PyPI's wheels make inside the environment."""
    script = (
        "import importlib.util, pathlib\n"
        "spec = importlib.util.find_spec('nvidia')\n"
        "places = [pathlib.Path(p) / 'cu13' for p in spec.submodule_search_locations] if spec else []\n"
        "print(next((str(p) for p in places if (p / 'bin' / 'nvcc').is_file()), ''))\n"
    )
    result = subprocess.run([environment.python, "-I", "-c", script], capture_output=True, text=True, check=False)
    folder = result.stdout.strip()
    if not folder:
        raise SetupError(f"PyPI's CUDA packages were installed in {environment.folder}, but hold no cu13/bin/nvcc.")
    return Path(folder)


def choose_cuda(environment: Environment, request: str, architectures: str | None = None) -> Cuda:
    """Decide whether the CUDA library is built and by which nvcc; installs PyPI's compiler when that is the one to use.

    `architectures` is a value for CMAKE_CUDA_ARCHITECTURES; by default those of the GPUs present, else one. The last
    one is also embedded as PTX, which is what CMake does for a plain number. The variable BARACUDA_CUDA_ARCHITECTURES
    names them, too, and BARACUDA_CUDA_UNOPTIMISED=ON is for builds that are checked and not run.
    """
    off = Cuda(False, False, ("-DBARACUDA_CUDA=OFF",), "")
    if request == "OFF":
        return Cuda(False, False, off.definitions, "libraries: CPU alone (BARACUDA_CUDA is OFF)")
    if request == "AUTO" and not driver_present():
        # A compiler alone is no reason to spend minutes on code that cannot run here.
        return Cuda(
            False,
            False,
            off.definitions,
            "libraries: CPU alone (no NVIDIA driver here; BARACUDA_CUDA=ON builds the CUDA library all the same)",
        )
    present = _installed_nvcc()
    numbers = gpu_architectures()
    if not architectures:
        architectures = os.environ.get("BARACUDA_CUDA_ARCHITECTURES")
    if not architectures:
        numbers = numbers or [DEFAULT_ARCHITECTURE]
        architectures = ";".join([*(number + "-real" for number in numbers[:-1]), numbers[-1]])
    # Any other value is none, here and for CMake, so that the summary tells what is built.
    unoptimised = os.environ.get("BARACUDA_CUDA_UNOPTIMISED") == "ON"
    definitions = ["-DBARACUDA_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
    definitions += [f"-DBARACUDA_CUDA_UNOPTIMISED={'ON' if unoptimised else 'OFF'}"]
    if present is not None:
        compiler, version = present
        origin = compiler
        definitions += [f"-DCMAKE_CUDA_COMPILER={compiler}"]
    else:
        install_sets(environment, ["nvcc"])
        toolkit = pypi_toolkit(environment)
        compiler = str(toolkit / "bin" / "nvcc")
        found = nvcc_version(compiler)
        if found is None:
            raise SetupError(f"{compiler} from PyPI does not run on this machine.")
        version, origin = found, "PyPI"
        # The wheels keep libcudart_static.a in lib, and their nvcc.profile names lib64.
        definitions += [f"-DCMAKE_CUDA_COMPILER={compiler}", f"-DCMAKE_CUDA_FLAGS=-L{toolkit / 'lib'}"]
    summary = f"libraries: CPU and CUDA (nvcc {version[0]}.{version[1]} from {origin}, architectures {architectures}"
    summary += ", unoptimised)" if unoptimised else ")"
    return Cuda(True, request == "ON", tuple(definitions), summary)
