# SPDX-License-Identifier: Apache-2.0
"""The private virtual environment: how it is made, and which of pyproject.toml's requirements are installed into it."""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.commands import ROOT, SetupError, build_root, log_path, run_logged, say, shown

# What a build needs, CMake and Ninja, and what every tool needs: what the package itself depends on, too.
BUILD_SET = "build"
BASE_SETS = (BUILD_SET, "runtime")

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
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
)


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
        # A process that imports PyTorch starts in half of the time if its modules are compiled already. They are kept
        # here, so that a caller who wants none in his own folders gets none there.
        environ.setdefault("PYTHONPYCACHEPREFIX", str(self.folder / "pycache"))
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
    say(f"creating a private environment in {shown(environment.folder)}")
    shutil.rmtree(environment.folder, ignore_errors=True)
    environ = {key: value for key, value in os.environ.items() if key not in _LEAKING_VARIABLES}
    run_logged(
        [sys.executable, "-m", "venv", str(environment.folder)],
        log_path("venv"),
        "Could not make a virtual environment",
        environ,
    )
    return environment


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


def install_sets(environment: Environment, names: Iterable[str], silent: bool = False) -> None:
    """Install the named requirement sets from PyPI, unless the same requirements were installed before.

    `silent` is for an installation beside something whose progress is shown: it tells what it begins alone.
    """
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
        # Most modules are never imported; Python compiles the others when they are.
        [environment.python, "-m", "pip", "install", "--progress-bar=off", "--no-compile", *requirements],
        log_path("pip"),
        "Could not install the packages from PyPI; is the network reachable?",
        environment.environ(),
        silent=silent,
    )
    environment.record_sets({**installed, **{name: hashes[name] for name in together}})
    if not silent:
        say(f"installed in {time.monotonic() - start:.0f} s")
