# SPDX-License-Identifier: Apache-2.0
"""What the set-up decides and tells: whether CUDA is built, and what is shown while a step takes its time."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from tools import commands, cuda_choice, environment, native_build, private_environment

ENVIRONMENT = private_environment.Environment(Path("/nowhere"))


def machine(monkeypatch: pytest.MonkeyPatch, *, driver: bool) -> None:
    """A machine with nvcc 13.0, with or without an NVIDIA driver."""
    for variable in ("BARACUDA_CUDA_ARCHITECTURES", "BARACUDA_CUDA_UNOPTIMISED"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda_choice, "driver_present", lambda: driver)
    monkeypatch.setattr(cuda_choice, "gpu_architectures", lambda: ["80", "90"] if driver else [])
    monkeypatch.setattr(cuda_choice, "_installed_nvcc", lambda: ("/opt/nvcc", (13, 0)))


def test_without_a_driver_the_cpu_library_alone_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, driver=False)
    choice = cuda_choice.choose_cuda(ENVIRONMENT, "AUTO")
    assert not choice.enabled
    assert choice.definitions == ("-DBARACUDA_CUDA=OFF",)
    assert "no NVIDIA driver" in choice.summary
    assert "BARACUDA_CUDA=ON" in choice.summary


@pytest.mark.parametrize(("driver", "request_", "wanted"), [(True, "AUTO", "80-real;90"), (False, "ON", "90")])
def test_a_driver_or_a_wish_builds_cuda(
    monkeypatch: pytest.MonkeyPatch, driver: bool, request_: str, wanted: str
) -> None:
    machine(monkeypatch, driver=driver)
    choice = cuda_choice.choose_cuda(ENVIRONMENT, request_)
    assert choice.enabled
    assert f"-DCMAKE_CUDA_ARCHITECTURES={wanted}" in choice.definitions
    assert choice.required == (request_ == "ON")
    assert "-DBARACUDA_CUDA_UNOPTIMISED=OFF" in choice.definitions
    assert "unoptimised" not in choice.summary


def test_cuda_code_that_nobody_runs_need_not_be_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, driver=False)
    monkeypatch.setenv("BARACUDA_CUDA_UNOPTIMISED", "ON")
    choice = cuda_choice.choose_cuda(ENVIRONMENT, "ON")
    assert "-DBARACUDA_CUDA_UNOPTIMISED=ON" in choice.definitions
    assert "unoptimised" in choice.summary


@pytest.mark.parametrize(("given", "wanted"), [(None, "ON"), ("QUICK", "QUICK")])
def test_cpu_code_that_nobody_runs_need_not_be_optimised(
    monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: str
) -> None:
    monkeypatch.delenv("BARACUDA_AVX512", raising=False)
    if given is not None:
        monkeypatch.setenv("BARACUDA_AVX512", given)
    choice = cuda_choice.choose_cuda(ENVIRONMENT, "OFF")
    assert f"-DBARACUDA_AVX512={wanted}" in native_build._configure_arguments(ENVIRONMENT, Path("/build"), choice, ())


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "[3/47] Building CXX object CMakeFiles/kernels_cpu_avx2.dir/native/ops/pad/cpu.cc.o",
            "3 of 47: compiled native/ops/pad/cpu.cc for kernels_cpu_avx2",
        ),
        (
            "[4/9] Building C object tests/native/CMakeFiles/example.dir/example.c.o",
            "4 of 9: compiled example.c for example",
        ),
        ("[9/9] Linking CXX shared library libx.so", "9 of 9: Linking CXX shared library libx.so"),
        ("some/file.h:3:1: warning: [1/2] is no step", ""),
    ],
)
def test_a_build_step_is_told_in_words(line: str, wanted: str) -> None:
    assert native_build.described(line) == wanted


def logged(tmp_path: Path, script: str) -> Path:
    log = tmp_path / "step.log"
    commands.run_logged([sys.executable, "-c", script], log, "The step failed", os.environ)
    return log


def test_a_long_step_tells_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_QUIET_SECONDS", 0.5)
    log = logged(tmp_path, "import time; print('first', flush=True); time.sleep(2.5); print('last', end='')")
    shown = capsys.readouterr().out.splitlines()
    # Nothing was printed while it slept, and the newest line is told all the same.
    assert len(shown) == 1
    seconds, unit, what = shown[0].split()
    assert (unit, what) == ("s", "first")
    assert 1 <= int(seconds) <= 30
    assert log.read_text(encoding="utf-8").splitlines()[1:] == ["first", "last"]


def test_a_short_step_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(tmp_path, "print('one'); print('two')")
    assert capsys.readouterr().out == ""
    assert log.read_text(encoding="utf-8").splitlines()[1:] == ["one", "two"]


def test_a_failed_step_shows_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(commands.SetupError, match=r"(?s)\| why\n.*The step failed \(exit status 3; all of it: "):
        logged(tmp_path, "print('why'); raise SystemExit(3)")


def test_a_silent_step_shows_nothing_but_its_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_QUIET_SECONDS", 0.0)
    log = tmp_path / "step.log"
    commands.run_logged([sys.executable, "-c", "print('one')"], log, "It failed", os.environ, silent=True)
    assert capsys.readouterr().out == ""
    with pytest.raises(commands.SetupError, match="It failed"):
        commands.run_logged([sys.executable, "-c", "raise SystemExit(3)"], log, "It failed", os.environ, silent=True)


@pytest.mark.parametrize("broken", ["build", "packages", ""])
def test_packages_are_installed_while_the_compiler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    began, calls = threading.Event(), []

    def install_sets(_environment: object, names: list[str], silent: bool = False) -> None:
        calls.append((*names, silent))
        if silent:
            began.set()
            if broken == "packages":
                raise commands.SetupError("no network")

    def build(*_given: object) -> None:
        assert began.wait(60), "the compiler ended before the packages were asked for"
        calls.append("build")
        if broken == "build":
            raise commands.SetupError("no memory")

    monkeypatch.setenv("BARACUDA_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("BARACUDA_CUDA", "OFF")
    monkeypatch.setattr(environment, "create_environment", lambda: ENVIRONMENT)
    monkeypatch.setattr(environment, "install_sets", install_sets)
    monkeypatch.setattr(environment, "build", build)
    for name in ("check_compiler", "configure", "install_component", "link_source_package"):
        monkeypatch.setattr(environment, name, lambda *_given: calls.append("other"))
    if broken:
        with pytest.raises(commands.SetupError, match="no network" if broken == "packages" else "no memory"):
            environment.set_up(environment.Options(sets=("demo",)))
    else:
        environment.set_up(environment.Options(sets=("demo",)))
    steps = [call for call in calls if call != "other"]
    # CMake and Ninja first, alone.
    assert steps == [("build", False), ("build", "runtime", "demo", True), "build"]
