"""Builds the native libraries when the package is installed; without a C++ compiler they are left out."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class NativeEngine(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the native libraries to the wheel. A wheel with libraries is for one platform and any Python; a wheel
    without libraries is for every platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the native libraries, in the checkout if this can be written, because an editable install finds them
        there.

        If CUDABENCH_PURE is set, the wheel has no library and is for all machines; the first run on a machine builds
        the library that it needs. In builds by cibuildwheel and conda, the engine also runs on other processors than
        this one. The libraries for programs are built only on Linux.
        """
        if os.environ.get("CUDABENCH_PURE"):
            return
        native, folder = _builder(Path(self.root)), Path(self.root) / "cudabench" / "_native"
        if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
            if version == "editable":
                return  # the checkout cannot be written, so the first run builds the engine into its cache
            self._temporary = tempfile.TemporaryDirectory()
            folder = Path(self._temporary.name)
        try:
            built = [native.build(folder, everywhere=not {"CIBUILDWHEEL", "CONDA_BUILD"}.isdisjoint(os.environ))]
        except native.NotBuilt as lack:
            self.app.display_warning(f"The simulator will run without its native engine, as {lack}.")
            return
        with suppress(native.NotBuilt):  # the first run of a program tries again, and says what is missing
            built += [*native.build_runtimes(folder), native.build_trace(folder)]
        if version != "editable":
            platform = next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))
            build_data["tag"], build_data["pure_python"] = f"py3-none-{platform}", False
            build_data["force_include"] |= {str(path): f"cudabench/_native/{path.name}" for path in built}


def _builder(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("native", root / "cudabench" / "system" / "native.py")
    assert spec is not None, "a path has a loader"
    assert spec.loader is not None, "a path has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
