# SPDX-License-Identifier: Apache-2.0
"""Sets up what the other tools stand on: the private environment, its packages and the native build."""

import argparse
import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools.commands import ROOT, SetupError, build_root, guarded, say, shown
from tools.cuda_choice import choose_cuda, cuda_request, driver_present
from tools.native_build import (
    CompilerError,
    build,
    check_compiler,
    configuration_record,
    configure,
    install_component,
    link_source_package,
    native_folder,
)
from tools.private_environment import BASE_SETS, BUILD_SET, Environment, create_environment, install_sets


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


class Options(NamedTuple):
    """What a caller may change about the set-up; the defaults are those of the README's commands."""

    sets: tuple[str, ...] = ()
    cuda: str | None = None
    architectures: str | None = None
    native: str = "native"
    definitions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    native_tests: bool = True
    install: bool = True


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
        install_sets(environment, [BUILD_SET])
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
        # The compiler waits for no download: what Python needs is installed beside it.
        with ThreadPoolExecutor(1) as beside:
            installed = beside.submit(install_sets, environment, sets, silent=True)
            build(environment, folder, options.targets or (() if options.native_tests else ("python_package",)))
            installed.result()
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
    say(f"ready: {shown(environment.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
