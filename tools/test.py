# SPDX-License-Identifier: Apache-2.0
"""Sets everything up and runs every test: ctest, then pytest. What the tests are is said elsewhere."""

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools import commands, environment, native_build, private_environment

# ctest may skip a test only because the machine lacks one of these: a line of the test's output begins with it.
# pytest's skips are judged where they happen, by tests/skip_policy.py.
ALLOWED_SKIPS = ("no CUDA", "no torch", "no rustc")

# Every process of pytest imports the frameworks, about 1 GB.
MOST_PROCESSES = 8


def skipped(report: Path) -> list[tuple[str, str]]:
    """The skipped tests in ctest's JUnit report as (test, reason); the reason is empty if it is not an allowed one."""
    found = []
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
            found.append((case.get("name", ""), next((line for line in lines if line.startswith(ALLOWED_SKIPS)), "")))
    return found


def run_ctest(private: private_environment.Environment) -> bool:
    """Run the native tests; True if all passed and none was skipped without an allowed reason."""
    report = commands.log_path("ctest").with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = [private.program("ctest"), "--test-dir", str(native_build.native_folder()), "--output-on-failure"]
    command += ["--no-tests=error", "--parallel", str(commands.job_count()), "--output-junit", str(report)]
    passed = subprocess.run(command, cwd=commands.ROOT, env=private.environ(), check=False).returncode == 0
    for name, reason in skipped(report) if report.is_file() else []:
        commands.say(f"skipped {name}: {reason or 'for a reason that is not allowed'}")
        passed = passed and bool(reason)
    return passed


def run_pytest(private: private_environment.Environment, arguments: list[str]) -> bool:
    """Run the Python tests with extra arguments, one process for each CPU; True if all passed."""
    processes = min(commands.job_count(), MOST_PROCESSES)
    # Neighbouring tests take alike long: handed out beforehand, one framework's would keep a single process busy.
    parallel = ["-n", str(processes), "--dist", "worksteal"]
    # More threads of a framework than this process's share of the CPUs would only take turns on them.
    threads = str(commands.job_count() // processes)
    environ = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads} | private.environ()
    command = [private.python, "-m", "pytest", *parallel, *arguments]
    return subprocess.run(command, cwd=commands.ROOT, env=environ, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Set up, then run ctest and pytest."""
    parser = argparse.ArgumentParser(
        description="Set up and run every test. Arguments after -- go to pytest (--pdb also needs -n 0 there).",
        usage="%(prog)s [options] [-- PYTEST ARGUMENTS]",
    )
    environment.add_options(parser)
    parser.add_argument("--with-torch", action="store_true", help="also install torch and compare with it")
    parser.add_argument("--keep-going", action="store_true", help="run pytest even if ctest failed")
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    sets = ["demo", "test", *(["torch"] if options.with_torch else [])]
    private = environment.set_up(
        environment.Options(sets=tuple(sets), cuda=options.cuda, architectures=options.cuda_architectures)
    )

    native_passed = run_ctest(private)
    if not native_passed and not options.keep_going:
        commands.say("ctest failed (pytest was not run; --keep-going runs it all the same)")
        return 1
    python_passed = run_pytest(private, arguments[split + 1 :])

    outcome = {True: "passed", False: "FAILED"}
    commands.say(f"ctest {outcome[native_passed]}, pytest {outcome[python_passed]}")
    return 0 if native_passed and python_passed else 1


if __name__ == "__main__":
    sys.exit(commands.guarded(main))
