# SPDX-License-Identifier: Apache-2.0
"""The skip policy itself: an allowed skip is printed and counted, any other fails the session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import skip_policy

import pybaracuda


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        ("no CUDA", True),
        ("fewer than two GPUs", True),
        ("no torch", True),
        ("no usable torchvision", True),
        ("no rustc", True),
        ("no CUDA today", False),
        ("could not import 'torch'", False),
        ("", False),
    ],
)
def test_reasons(monkeypatch: pytest.MonkeyPatch, reason: str, allowed: bool) -> None:
    monkeypatch.delenv("BARACUDA_TEST_REQUIRE", raising=False)
    assert skip_policy.is_allowed(reason) == allowed


def test_a_required_thing_may_not_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_TEST_REQUIRE", "cuda, rustc, gpus")
    assert not skip_policy.is_allowed("no CUDA")
    assert not skip_policy.is_allowed("fewer than two GPUs")
    assert not skip_policy.is_allowed("no rustc")
    assert skip_policy.is_allowed("no torch")


def session(folder: Path, test_module: str) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own over one test file, with the policy installed."""
    (folder / "conftest.py").write_text(
        "import skip_policy\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(skip_policy.SkipPolicy(), 'policy')\n",
        encoding="utf-8",
    )
    (folder / "test_it.py").write_text("import pytest\n" + test_module, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "BARACUDA_"))}
    # The package may be this source tree's, which a process of another folder does not find.
    folders = Path(skip_policy.__file__).parent, Path(pybaracuda.__file__).parents[1]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)


def test_allowed_skips_are_printed_with_their_counts(tmp_path: Path) -> None:
    done = session(
        tmp_path,
        "@pytest.mark.parametrize('i', range(3))\n"
        "def test_it(i):\n"
        "    pytest.skip('no CUDA')\n"
        "@pytest.mark.skip(reason='no rustc')\n"
        "def test_other(): pass\n",
    )
    assert done.returncode == 0, done.stdout
    assert "no CUDA: 3 skipped" in done.stdout
    assert "no rustc: 1 skipped" in done.stdout


@pytest.mark.parametrize(
    "test_module",
    [
        "def test_it(): pytest.skip('a bad day')\n",
        "@pytest.mark.skip(reason='a bad day')\ndef test_it(): pass\n",
        "@pytest.fixture\ndef it(): pytest.skip('a bad day')\ndef test_it(it): pass\n",
        "pytest.skip('a bad day', allow_module_level=True)\n",
        "pytest.importorskip('no_such_module_anywhere')\n",
    ],
    ids=["call", "mark", "fixture", "module", "import"],
)
def test_any_other_skip_fails(tmp_path: Path, test_module: str) -> None:
    done = session(tmp_path, test_module)
    assert done.returncode != 0, done.stdout
    assert "not allowed" in done.stdout
