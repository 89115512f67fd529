# SPDX-License-Identifier: Apache-2.0
"""What install() says where it cannot work, and a kernel that fails: one sentence, and nothing has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import pybaracuda

PACKAGE = str(Path(pybaracuda.__file__).parents[1])
# A call that PyTorch and our kernels answer alike, and whether ours did it: PyTorch's own kernel may call another
# operator that is ours.
CALL = """
def ours():
    return sum(line.ours for line in pybaracuda.torch.report().lines if line.operator == "aten::index_add")

def taken():
    before = ours()
    total = torch.zeros(3, 1).index_add(0, torch.tensor([0, 2]), torch.ones(2, 1))
    assert total.tolist() == [[1], [0], [1]], total
    return ours() > before
"""


def run(
    code: str, *arguments: str, folders: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run code, or with arguments a command line, in a process of its own."""
    path = os.pathsep.join([*folders, PACKAGE])
    command = [sys.executable, *(arguments or ("-c", "import torch, pybaracuda.torch\n" + CALL + code))]
    environ = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def passed(code: str, folders: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    done = run(code, folders=folders, **variables)
    assert done.returncode == 0, done.stderr
    return done


def test_a_kernel_that_fails_names_the_operator_and_how_to_leave_it_out() -> None:
    passed("""
import dataclasses
from pybaracuda.torch._route import ROUTES
def fail(*args, **kwargs):
    raise pybaracuda.UnsupportedError("there is not enough of it")
ROUTES["aten::index_add"] = dataclasses.replace(ROUTES["aten::index_add"], run=fail)
pybaracuda.torch.install()
try:
    taken()
except RuntimeError as error:
    text = str(error)
else:
    raise AssertionError("it did not fail")
assert text == (
    "pybaracuda could not do aten::index_add: there is not enough of it. "
    'pybaracuda.torch.install(exclude=["index_add"]) leaves this operator to PyTorch.'
), text
pybaracuda.torch.uninstall()
# What it says is true.
pybaracuda.torch.install(exclude=["index_add"])
assert not taken()
""")


def test_a_pytorch_that_is_too_old_is_told_in_one_sentence() -> None:
    passed("""
del torch.library.get_kernel
torch.__version__ = "2.8.0"
for deterministic in (False, True):
    try:
        pybaracuda.torch.install(deterministic=deterministic)
    except RuntimeError as error:
        assert str(error) == "pybaracuda.torch.install needs PyTorch 2.9 or newer; this is 2.8.0", error
    else:
        raise AssertionError("it did install")
    assert not taken() and not torch.are_deterministic_algorithms_enabled()
pybaracuda.torch.uninstall()
assert not taken()
""")


def stub(folder: Path, name: str, text: str) -> str:
    """A package of this name that is found first; the folder to find it in."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(text, encoding="utf-8")
    return str(folder)


def test_without_pytorch_the_package_works_and_its_torch_part_says_what_is_missing(tmp_path: Path) -> None:
    folder = stub(tmp_path, "torch", "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    path = os.pathsep.join([folder, PACKAGE])
    code = (
        "import numpy as np, pybaracuda\n"
        "assert pybaracuda.pad(np.ones(2, np.float32), 1, 1).tolist() == [0, 1, 1, 0]\n"
        "try: import pybaracuda.torch\n"
        "except ModuleNotFoundError as error: assert 'needs PyTorch, which is not installed' in str(error), error\n"
        "else: raise AssertionError\n"
    )
    done = run("", "-c", code, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    done = run("", "-m", "pybaracuda.torch", "program.py", PYTHONPATH=path)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "pybaracuda.torch needs PyTorch, which is not installed" in done.stderr


def test_the_command_line_says_in_one_sentence_what_it_cannot_do(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise AssertionError('it ran')\n", encoding="utf-8")
    done = run("", "-m", "pybaracuda.torch", "--ops", "nothing_of_the_kind", str(program))
    assert done.returncode == 1
    assert done.stderr.startswith("pybaracuda.torch: nothing is installed: there is no operator nothing_of_the_kind")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("first", ["install", "torchvision"])
def test_a_torchvision_that_cannot_be_imported_is_left_alone(first: str, tmp_path: Path) -> None:
    """Its own error comes whenever it is imported; all but its operators are taken over and given back."""
    text = "operator torchvision::nms does not exist"
    folder = stub(tmp_path, "torchvision", f'raise RuntimeError("{text}")\n')
    done = passed(
        f"""
import sys
def import_it():
    try:
        import torchvision
    except RuntimeError as error:
        assert str(error) == "{text}"
    else:
        raise AssertionError("it was imported")
if "{first}" == "torchvision":
    import_it()
finders = list(sys.meta_path)
installation = pybaracuda.torch.install()
assert taken()
import_it()
assert taken()
assert not any("torchvision" in name for name in installation.operators)
installation.remove()
import_it()
assert not taken() and sys.meta_path == finders
""",
        (folder,),
    )
    assert done.stderr == ""


def test_a_spawned_process_goes_on_where_nothing_can_be_installed(as_installed: dict[str, str]) -> None:
    """An import of torch must not end because its parent asked for what there is not."""
    wish = {"PYBARACUDA_TORCH": "1;ops=nothing_of_the_kind"}
    done = run("", "-c", "import torch; print('on')", **{**as_installed, **wish})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "on\n"
    assert done.stderr.startswith("pybaracuda.torch: nothing is installed: there is no operator")
    assert len(done.stderr.splitlines()) == 1
