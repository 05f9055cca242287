"""Imports point down, the core is pure, and each outside thing is touched in one place only."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import stallwatch

PACKAGE = Path(stallwatch.__file__).parent
ROOT = "stallwatch"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    (
        "catalogue",
        "clock",
        "durations",
        "errors",
        "foreign_errors",
        "logs",
        "policy",
        "policy_blocks",
        "resolution",
        "version",
    ),
    ("known_settings",),
    ("settings",),
    ("telemetry",),
    ("runtime", "run"),
    ("sdk",),
    ("governing", "instrumentor", "routing", "router", "asgi_inbox", "asgi"),
    ("testing", "cli", "__init__", "__main__"),
)
"""Lowest first. A module may import its own layer and those before it."""

PURE = frozenset(
    {
        "__future__",
        "abc",
        "bisect",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "re",
        "string",
        "types",
        "typing",
    }
)
"""What the core may import from the standard library: nothing that waits, tells the time, rolls dice or does I/O."""

OPENAI = ("errors", "sdk", "cli")
OPENTELEMETRY = ("telemetry", "governing", "instrumentor", "sdk", "cli")
ENVIRONMENT = ("settings", "cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An import: of what, by which module, and whether type checkers alone see it or only a call runs it."""

    importer: str
    target: str
    line: int
    types_only: bool
    late: bool

    @property
    def outside(self) -> str:
        return self.target.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def name_of(path: Path) -> str:
    parts = (ROOT, *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> dict[str, ast.Module]:
    # Python 3.11 fails when a finaliser that formats a traceback, which parses too, comes in between.
    gc.collect()
    gc.disable()
    try:
        return {
            name_of(path): ast.parse(path.read_bytes(), str(path)) for path in sorted(PACKAGE.rglob("*.py"))
        }
    finally:
        gc.enable()


def is_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def statements(body: list[ast.stmt], types_only: bool, late: bool) -> Iterator[tuple[ast.stmt, bool, bool]]:
    for node in body:
        yield node, types_only, late
        inner_late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, [])
            yield from statements(inner, types_only or (field == "body" and is_types_only(node)), inner_late)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(part.body, types_only, inner_late)


def targets(importer: str, node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, (
            f"{importer}:{node.lineno}: write imports in full, so that they can be searched for"
        )
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            yield module if module in trees() else str(node.module)


@cache
def imports() -> tuple[Import, ...]:
    return tuple(
        Import(importer=importer, target=target, line=node.lineno, types_only=types_only, late=late)
        for importer, tree in trees().items()
        for node, types_only, late in statements(tree.body, False, False)
        for target in targets(importer, node)
    )


def part_of(module: str) -> str:
    """Return the file or folder of the package that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def layer_of(module: str) -> int:
    part = part_of(module)
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def complaints(found: Iterator[Import]) -> list[str]:
    return [str(one) for one in found]


def test_the_package_is_looked_at() -> None:
    assert {"stallwatch.core.phases", "stallwatch.errors", "stallwatch.settings"} <= trees().keys()
    assert any(one.target == "stallwatch.core.words" for one in imports())


def test_every_module_has_a_layer() -> None:
    known = {part for layer in LAYERS for part in layer}
    homeless = sorted({part_of(module) for module in trees()} - known)
    assert not homeless, f"give these a place in LAYERS: {homeless}"


def test_imports_point_down() -> None:
    inner = (one for one in imports() if one.outside == ROOT)
    assert not complaints(one for one in inner if layer_of(one.importer) < layer_of(one.target))


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {module: set() for module in trees()}
    for one in imports():
        if one.target in edges and not one.types_only and not one.late:
            edges[one.importer].add(one.target)
    while free := [module for module, needs in edges.items() if not needs & edges.keys() - {module}]:
        for module in free:
            del edges[module]
    assert not edges, f"in or above a circle: {sorted(edges)}"


def test_the_core_imports_nothing_but_itself_and_pure_modules() -> None:
    core = (one for one in imports() if part_of(one.importer) == "core")
    assert not complaints(
        one
        for one in core
        if part_of(one.target) != "core" and (one.outside == ROOT or one.outside not in PURE)
    )


def test_the_core_does_no_input_or_output() -> None:
    calls = [
        f"{module}:{node.lineno} calls {node.func.id}"
        for module, tree in trees().items()
        if part_of(module) == "core"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in ("open", "print", "input", "exec", "eval", "__import__")
    ]
    assert not calls


@pytest.mark.parametrize(("library", "allowed"), [("openai", OPENAI), ("opentelemetry", OPENTELEMETRY)])
def test_only_some_modules_import(library: str, allowed: tuple[str, ...]) -> None:
    # What only type checkers see is not imported.
    used = (one for one in imports() if one.outside == library and not one.types_only)
    assert not complaints(one for one in used if part_of(one.importer) not in allowed)


def test_no_module_needs_one_of_the_two_http_libraries() -> None:
    # Which of them is there depends on the release of the SDK; with types, too, one of them would be missing.
    libraries = ("httpx", "httpx2", "httpcore", "httpcore2")
    assert not complaints(one for one in imports() if one.outside in libraries and not one.late)


def test_the_cli_alone_imports_rich() -> None:
    assert not complaints(
        one for one in imports() if one.outside == "rich" and part_of(one.importer) != "cli"
    )


def test_the_pytest_plugin_alone_imports_pytest() -> None:
    used = (one for one in imports() if one.outside in ("pytest", "_pytest", "pluggy"))
    assert not complaints(one for one in used if part_of(one.importer) != "testing")


def test_settings_alone_reads_the_environment() -> None:
    readers = [
        f"{module}:{node.lineno}"
        for module, tree in trees().items()
        if part_of(module) not in ENVIRONMENT
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {a.name for a in node.names}
        )
    ]
    assert not readers
