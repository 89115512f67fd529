# SPDX-License-Identifier: Apache-2.0
"""The package's modules stand in layers: what one imports, at its top or inside a function, never leads back to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pybaracuda

PACKAGE = Path(pybaracuda.__file__).parent


def modules_of(package: Path) -> dict[str, Path]:
    """Every module by its full name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Which of `modules` a module names in import statements, wherever these stand in it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    named: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # A name of a package is its module of that name, if there is one.
                member = f"{source}.{alias.name}"
                named.add(member if member in modules else source)
    return named & modules.keys()


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Answer the modules of one circle in order, the first one again at the end; nothing if there is none."""
    done: set[str] = set()

    def search(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for imported in sorted(graph[name]):
            if circle := search(imported, [*trail, name]):
                return circle
        done.add(name)
        return []

    return next((circle for name in sorted(graph) if (circle := search(name, []))), [])


def graph_of(package: Path) -> dict[str, set[str]]:
    modules = modules_of(package)
    return {name: imports_of(name, path, modules) for name, path in modules.items()}


def test_no_module_imports_itself_through_others() -> None:
    graph = graph_of(PACKAGE)
    assert "pybaracuda._kernel" in graph["pybaracuda._plan"]
    assert "pybaracuda._arrays.torch" in graph["pybaracuda._arrays.recognition"]  # inside a function
    assert circle_in(graph) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "house"
    (package / "rooms").mkdir(parents=True)
    sources = {
        "__init__": "from .door import enter",
        "door": "from . import hall",
        "hall": "def go():\n    from .rooms import kitchen",
        "rooms/__init__": "",
        "rooms/kitchen": "if True:\n    from ..door import enter",
    }
    for name, text in sources.items():
        (package / f"{name}.py").write_text(text)
    circle = circle_in(graph_of(package))
    assert circle == ["house.door", "house.hall", "house.rooms.kitchen", "house.door"]
    (package / "rooms/kitchen.py").write_text("import house")
    assert circle_in(graph_of(package))[0] == "house"
    (package / "rooms/kitchen.py").write_text("import os")
    assert circle_in(graph_of(package)) == []


def test_kernels_know_no_arrays_and_adapters_no_operators() -> None:
    graph = graph_of(PACKAGE)

    def reached(name: str) -> set[str]:
        found: set[str] = set()
        left = {name}
        while left:
            each = left.pop()
            found.add(each)
            left |= graph[each] - found
        return found

    assert not [name for name in reached("pybaracuda._kernel") if name.startswith("pybaracuda._arrays")]
    below = reached("pybaracuda._arrays")
    assert {name for name in below if not name.rpartition(".")[2].startswith("_") and "_arrays" not in name} == set()
    assert "pybaracuda._plan" not in below
