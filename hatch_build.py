"""Builds the simulator's native engine when the package is installed; without a C++ compiler it is left out."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class NativeEngine(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel with the library is of a platform, for any Python; one without is pure."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, in the checkout if it can be written: there an editable install finds it.

        CUDABENCH_PURE makes a wheel without the library, for all machines, whose first run builds it. What cibuildwheel
        and conda make is for other processors than this one too. The first run of a program builds the CUDA runtime.
        """
        if os.environ.get("CUDABENCH_PURE"):
            return
        native, folder = _builder(Path(self.root)), Path(self.root) / "cudabench" / "_native"
        if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
            if version == "editable":
                return  # the first run builds it into its cache
            self._temporary = tempfile.TemporaryDirectory()
            folder = Path(self._temporary.name)
        try:
            made = native.build(folder, everywhere=not {"CIBUILDWHEEL", "CONDA_BUILD"}.isdisjoint(os.environ))
        except native.NotBuilt as lack:
            self.app.display_warning(f"The simulator will run without its native engine, as {lack}.")
            return
        if version != "editable":
            platform = next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))
            build_data["tag"], build_data["pure_python"] = f"py3-none-{platform}", False
            build_data["force_include"][str(made)] = f"cudabench/_native/{made.name}"


def _builder(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("native", root / "cudabench" / "system" / "native.py")
    assert spec is not None, "a path has a loader"
    assert spec.loader is not None, "a path has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
