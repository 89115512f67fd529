# SPDX-License-Identifier: Apache-2.0
"""Sets up the private environment and the native build for the other tools; holds no test, demo or wheel logic."""

import sys

# Every statement above and below must also parse on Python 3.6, so that an old interpreter reaches this sentence.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit(f"pybaracuda needs Python 3.10 or newer; this is {sys.version.split()[0]} ({sys.executable}).")

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# What every tool needs: CMake and Ninja, and what the package itself depends on.
BASE_SETS = ("build", "runtime")

# One architecture keeps a source build short; its PTX runs on every later GPU.
DEFAULT_ARCHITECTURE = "90"

# nvcc 13 generates code for sm_75 and later; an older GPU cannot run the library at all.
OLDEST_ARCHITECTURE = 75

# The library's floor is a CUDA 13 driver, so an older toolkit on PATH is passed over for the one from PyPI.
OLDEST_NVCC = (13, 0)

# Variables of the caller that would lead pip, Python, CMake or an install step away from the private environment.
_LEAKING_VARIABLES = (
    "CMAKE_GENERATOR",
    "CMAKE_TOOLCHAIN_FILE",
    "CUDAARCHS",
    "DESTDIR",
    "NINJA_STATUS",
    "PIP_PREFIX",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
)

# Variables that CMake reads when it configures: a change in one of them means configuring again.
_CONFIGURE_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX", "CUDAFLAGS", "CUDAHOSTCXX")

_LOG_TAIL_LINES = 25


class SetupError(Exception):
    """A failure that the user can act on; its text is the whole of what is printed."""


class CompilerError(SetupError):
    """This machine has no compiler that can build the native library."""


def say(text: str) -> None:
    """Print one progress line at once, also into a pipe."""
    print(text, flush=True)


def build_root() -> Path:
    """Where everything that is built goes: `build` in the repository, or BARACUDA_BUILD_DIR."""
    return (ROOT / os.environ.get("BARACUDA_BUILD_DIR", "build")).resolve()


def log_path(name: str) -> Path:
    """The log file of one step; the folder is made on the way."""
    folder = build_root() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (name + ".log")


def job_count() -> int:
    """Parallel jobs for compilers: the CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


# ------------------------------------------------------------------------------------------------------------- commands


def run_logged(command: Sequence[str], log: Path, failure: str, environ: Mapping[str, str], cwd: Path = ROOT) -> None:
    """Run `command` with its output in `log`; a failure is a SetupError: the log's last lines, `failure` and the path.

    On a terminal the newest line of output is shown in place while the command runs.
    """
    live = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    with log.open("w", encoding="utf-8") as sink:
        sink.write("$ " + shlex.join(command) + "\n")
        sink.flush()
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise SetupError(f"{failure}: cannot start {command[0]}: {error.strerror}.") from None
        assert process.stdout is not None
        for line in process.stdout:
            sink.write(line)
            if live and line.strip():
                print("\r\033[K" + line.strip()[:width], end="", flush=True)
        code = process.wait()
    if live:
        print("\r\033[K", end="", flush=True)
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        raise SetupError(
            "\n".join([*("  | " + line for line in tail), f"{failure} (exit status {code}; all of it: {log})."])
        )


def fail(error: SetupError) -> int:
    """Print an expected failure as it is, without a traceback; returns the exit status."""
    *details, sentence = str(error).splitlines()
    print("\n".join([*details, f"error: {sentence}"]), file=sys.stderr, flush=True)
    return 1


# -------------------------------------------------------------------------------------------------- private environment


@dataclass(frozen=True)
class Environment:
    """The private virtual environment: nothing but these tools installs into it or runs from it."""

    folder: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    def program(self, name: str) -> str:
        """A program that one of its packages brings, such as cmake."""
        return str(self.folder / "bin" / name)

    @property
    def site_packages(self) -> Path:
        """The folder of its installed packages."""
        found = sorted(self.folder.glob("lib/python3.*/site-packages"))
        if not found:
            raise SetupError(f"{self.folder} is not a virtual environment: delete it and run this again.")
        return found[-1]

    def environ(self) -> dict[str, str]:
        """The caller's variables less those that would lead away from this environment, its programs first on PATH."""
        environ = {key: value for key, value in os.environ.items() if key not in _LEAKING_VARIABLES}
        environ["PATH"] = os.pathsep.join([str(self.folder / "bin"), environ.get("PATH", os.defpath)])
        environ["PYTHONNOUSERSITE"] = "1"
        environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        environ["PIP_NO_INPUT"] = "1"
        return environ

    @property
    def _record(self) -> Path:
        return self.folder / "pybaracuda-environment.json"

    def installed_sets(self) -> dict[str, str]:
        """What was installed here: the name of each requirement set and the hash of its requirements."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        # A copied or moved environment has scripts that name the old place: install into it again.
        return record["sets"] if record.get("folder") == str(self.folder) else {}

    def record_sets(self, sets: Mapping[str, str]) -> None:
        """Remember what was installed."""
        text = json.dumps({"folder": str(self.folder), "sets": dict(sets)}, indent=1)
        self._record.write_text(text + "\n", encoding="utf-8")


def _works(environment: Environment) -> bool:
    """Whether the environment's interpreter runs and has pip (an interrupted creation leaves one that does not)."""
    if environment.installed_sets():
        command = [environment.python, "-I", "-S", "-c", ""]
    else:
        command = [environment.python, "-I", "-c", "import pip"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def create_environment() -> Environment:
    """The private environment `build/env`, made with the running Python unless a working one is there."""
    if not sys.platform.startswith("linux"):
        raise SetupError(f"pybaracuda builds on Linux only; this is {sys.platform}.")
    environment = Environment(build_root() / "env")
    if _works(environment):
        return environment
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"This Python ({sys.executable}) cannot make a virtual environment with pip: install its venv module "
            f"(on Debian and Ubuntu: apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv)."
        )
    say(f"creating a private environment in {_shown(environment.folder)}")
    shutil.rmtree(environment.folder, ignore_errors=True)
    environ = {key: value for key, value in os.environ.items() if key not in _LEAKING_VARIABLES}
    run_logged(
        [sys.executable, "-m", "venv", str(environment.folder)],
        log_path("venv"),
        "Could not make a virtual environment",
        environ,
    )
    return environment


def _shown(path: Path) -> str:
    """A path as it is shown to the user: relative to where they stand, when it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _project_table(environment: Environment) -> dict[str, Any]:
    """pyproject.toml as a dictionary."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    # Python 3.10 has no TOML reader of its own, but the pip in the private environment always carries one.
    script = "import json, sys; from pip._vendor import tomli; json.dump(tomli.loads(sys.stdin.read()), sys.stdout)"
    result = subprocess.run(
        [environment.python, "-I", "-c", script], input=text, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise SetupError(f"Cannot read pyproject.toml with the environment's pip: {result.stderr.strip()}")
    table: dict[str, Any] = json.loads(result.stdout)
    return table


def requirement_sets(table: Mapping[str, Any]) -> dict[str, list[str]]:
    """Every named list of requirements in pyproject.toml: `runtime`, the extras and the dependency groups."""
    sets: dict[str, list[str]] = {"runtime": list(table["project"]["dependencies"])}
    sets.update(table["project"].get("optional-dependencies", {}))
    groups = table.get("dependency-groups", {})

    def expand(name: str) -> list[str]:
        found: list[str] = []
        for item in groups[name]:
            found.extend(expand(item["include-group"]) if isinstance(item, dict) else [item])
        return found

    for name in groups:
        if name in sets:
            raise SetupError(f"pyproject.toml has both an extra and a dependency group named {name!r}.")
        sets[name] = expand(name)
    return sets


def install_sets(environment: Environment, names: Iterable[str]) -> None:
    """Install the named requirement sets from PyPI, unless the same requirements were installed before."""
    known = requirement_sets(_project_table(environment))
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SetupError(f"pyproject.toml has no requirement set {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    hashes = {name: hashlib.sha256("\n".join(known[name]).encode()).hexdigest() for name in known}
    installed = environment.installed_sets()
    missing = [name for name in wanted if installed.get(name) != hashes[name]]
    if not missing:
        return
    # The sets of earlier runs go along, so that one resolution keeps all of them satisfied.
    together = [name for name in known if name in wanted or name in installed]
    requirements = sorted({requirement for name in together for requirement in known[name]})
    new = sorted({requirement for name in missing for requirement in known[name]})
    start = time.monotonic()
    say(f"installing from PyPI: {', '.join(new)}")
    run_logged(
        [environment.python, "-m", "pip", "install", "--progress-bar=off", *requirements],
        log_path("pip"),
        "Could not install the packages from PyPI; is the network reachable?",
        environment.environ(),
    )
    environment.record_sets({**installed, **{name: hashes[name] for name in together}})
    say(f"installed in {time.monotonic() - start:.0f} s")


# ----------------------------------------------------------------------------------------------------------------- CUDA


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
    one is also embedded as PTX, which is what CMake does for a plain number.
    """
    off = Cuda(False, False, ("-DBARACUDA_CUDA=OFF",), "")
    if request == "OFF":
        return Cuda(False, False, off.definitions, "libraries: CPU alone (BARACUDA_CUDA is OFF)")
    present = _installed_nvcc()
    if present is None and request == "AUTO" and not driver_present():
        return Cuda(False, False, off.definitions, "libraries: CPU alone (no CUDA compiler and no NVIDIA driver here)")
    numbers = gpu_architectures()
    if not architectures:
        architectures = os.environ.get("BARACUDA_CUDA_ARCHITECTURES")
    if not architectures:
        numbers = numbers or [DEFAULT_ARCHITECTURE]
        architectures = ";".join([*(number + "-real" for number in numbers[:-1]), numbers[-1]])
    definitions = ["-DBARACUDA_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
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
    summary = f"libraries: CPU and CUDA (nvcc {version[0]}.{version[1]} from {origin}, architectures {architectures})"
    return Cuda(True, request == "ON", tuple(definitions), summary)


# --------------------------------------------------------------------------------------------------------- native build


def check_compiler() -> None:
    """Raise CompilerError unless a C and a C++17 compiler work."""
    advice = "(on Debian and Ubuntu: apt install g++; on Fedora: dnf install gcc-c++), or name one in CXX."
    chosen = os.environ.get("CXX")
    names = [shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]
    usable = [name for name in names if shutil.which(name[0])]
    if not usable:
        raise CompilerError(f"No C++ compiler found: install one with C++17 {advice}")
    program = (
        "#include <optional>\n#include <string>\nint main() { return std::optional<std::string>().has_value(); }\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [*usable[0], "-std=c++17", "-x", "c++", "-", "-o", str(Path(folder) / "probe")]
        result = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = next((line for line in result.stderr.splitlines() if "error" in line), "it does not run")
        raise CompilerError(f"{usable[0][0]} cannot build a C++17 program ({reason.strip()}): install g++ {advice}")
    if not os.environ.get("CC") and not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise CompilerError(
            "No C compiler found: install gcc (on Debian and Ubuntu: apt install gcc), or name one in CC."
        )


def _configure_arguments(environment: Environment, folder: Path, cuda: Cuda, definitions: Sequence[str]) -> list[str]:
    return [
        environment.program("cmake"),
        *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={environment.program('ninja')}",
        "-DCMAKE_BUILD_TYPE=Release",
        *cuda.definitions,
        *definitions,
    ]


def configuration_record(folder: Path) -> Path:
    """The file in a native build that says how it was configured; without it the next set-up configures again."""
    return folder / "pybaracuda-configure.json"


def configure(environment: Environment, folder: Path, cuda: Cuda, definitions: Sequence[str] = ()) -> None:
    """Configure the native build in `folder`; nothing happens when it was configured in the same way before.

    Ninja itself runs CMake again when a CMake file changed.
    """
    arguments = _configure_arguments(environment, folder, cuda, definitions)
    record = configuration_record(folder)
    variables = {name: os.environ[name] for name in _CONFIGURE_VARIABLES if name in os.environ}
    text = json.dumps({"arguments": arguments, "variables": variables}, indent=1) + "\n"
    if record.is_file() and record.read_text(encoding="utf-8") == text and (folder / "build.ninja").is_file():
        return
    check_compiler()
    say(f"configuring {_shown(folder)}")
    # A cache made by other arguments would keep their answers. Objects stay: Ninja compares the commands.
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    shutil.rmtree(folder / "CMakeFiles" / "CMakeScratch", ignore_errors=True)
    for stale in folder.glob("CMakeFiles/[0-9]*"):
        shutil.rmtree(stale, ignore_errors=True)
    record.unlink(missing_ok=True)
    run_logged(
        arguments, log_path(f"configure-{folder.name}"), "CMake could not configure the build", environment.environ()
    )
    record.write_text(text, encoding="utf-8")


def build(environment: Environment, folder: Path, targets: Sequence[str] = ()) -> None:
    """Build the configured folder; incremental, and silent when nothing was to be done."""
    command = [environment.program("cmake"), "--build", str(folder), "--parallel", str(job_count())]
    if targets:
        command += ["--target", *targets]
    log = log_path(f"build-{folder.name}")
    start = time.monotonic()
    run_logged(command, log, "The native build failed", environment.environ())
    if "no work to do" not in log.read_text(encoding="utf-8", errors="replace"):
        say(f"built {_shown(folder)} in {time.monotonic() - start:.0f} s")


def install_component(environment: Environment, folder: Path, prefix: Path) -> None:
    """Put the package's libraries and header below `prefix`, as the wheel has them."""
    run_logged(
        [environment.program("cmake"), "--install", str(folder), "--component", "pybaracuda", "--prefix", str(prefix)],
        log_path(f"install-{folder.name}"),
        "Installing the native libraries into the package failed",
        environment.environ(),
    )
    # A library that this build does not make must not stay behind from an earlier one.
    manifest = folder / "install_manifest_pybaracuda.txt"
    fresh = {Path(line).resolve() for line in manifest.read_text(encoding="utf-8").splitlines()}
    for library in (prefix / "pybaracuda" / "lib").glob("libbaracuda_kernels*"):
        if library.resolve() not in fresh:
            library.unlink()


def link_source_package(environment: Environment) -> None:
    """Make `import pybaracuda` in the private environment mean this source tree."""
    link = environment.site_packages / "pybaracuda-source.pth"
    text = f"{ROOT}\n"
    if not link.is_file() or link.read_text(encoding="utf-8") != text:
        link.write_text(text, encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------- set-up


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the build folder's lock, so that two tools started at once set up one after the other."""
    build_root().mkdir(parents=True, exist_ok=True)
    with (build_root() / "set-up.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another set-up in the same build folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Options:
    """What a caller may change about the set-up; the defaults are those of the README's commands."""

    sets: tuple[str, ...] = ()
    cuda: str | None = None
    architectures: str | None = None
    native: str = "native"
    definitions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    install: bool = True


def native_folder(name: str = "native") -> Path:
    """The folder of a native build below the build folder; an absolute path stands for itself."""
    return build_root() / name


def set_up(options: Options) -> Environment:
    """Everything up to an importable package: environment, requirements, native build. Quick when nothing changed."""
    request = cuda_request(options.cuda)
    folder = native_folder(options.native)
    if not configuration_record(folder).is_file():
        check_compiler()  # before anything is downloaded
    with exclusive():
        environment = create_environment()
        sets = [*BASE_SETS, *options.sets]
        if driver_present() and request != "OFF":
            sets.append("cuda")
        install_sets(environment, sets)
        cuda = choose_cuda(environment, request, options.architectures)
        say(cuda.summary)
        try:
            configure(environment, folder, cuda, options.definitions)
        except SetupError as error:
            if isinstance(error, CompilerError) or not cuda.enabled or cuda.required:
                raise
            # A compiler that this nvcc refuses must not take the CPU library away; BARACUDA_CUDA=ON makes it an error.
            say(f"{error}\nCUDA does not work with this machine's compiler: building the CPU library alone")
            cuda = choose_cuda(environment, "OFF")
            configure(environment, folder, cuda, options.definitions)
        build(environment, folder, options.targets)
        if options.install:
            install_component(environment, folder, ROOT)
            link_source_package(environment)
        return environment


def add_options(parser: argparse.ArgumentParser) -> None:
    """The set-up options that every tool takes."""
    parser.add_argument(
        "--cuda", metavar="AUTO|ON|OFF", help="build the CUDA library (default: BARACUDA_CUDA, else AUTO)"
    )
    parser.add_argument(
        "--cuda-architectures", metavar="LIST", help="for CMake, as 80-real;90 (default: the GPUs present, else 90)"
    )


def guarded(main: Callable[[list[str]], int]) -> int:
    """Run a tool's main with the command line; expected failures become one message and exit status 1."""
    try:
        return main(sys.argv[1:])
    except SetupError as error:
        return fail(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        return 130


def main(arguments: list[str]) -> int:
    """Set up only; for CI and for those who want the environment without a demo or a test."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--with", dest="sets", action="append", default=[], metavar="SET", help="requirement set to add"
    )
    parser.add_argument("--native-dir", default="native", help="folder of the native build, below the build folder")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="a CMake cache entry")
    parser.add_argument("--target", action="append", default=[], help="build this target instead of everything")
    parser.add_argument("--no-install", action="store_true", help="build only, leave the source package as it is")
    options = parser.parse_args(arguments)
    environment = set_up(
        Options(
            sets=tuple(options.sets),
            cuda=options.cuda,
            architectures=options.cuda_architectures,
            native=options.native_dir,
            definitions=tuple("-D" + entry for entry in options.define),
            targets=tuple(options.target),
            install=not options.no_install,
        )
    )
    say(f"ready: {_shown(environment.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
