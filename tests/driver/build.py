"""Builds the simulated driver: `python -m tests.driver.build FOLDER` puts libcuda.so.1 and libnvidia-ml.so.1 there.

It reads from PyCUDA's extension which calls PyCUDA may make; a call that the driver lacks prints its name and fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from elftools.elf.elffile import ELFFile

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native" / "programs"
CORE = ("errors", "graphs", "launches", "memory", "modules", "streams", "textures")  # shared by both libraries
# driver.cpp defines all calls that this project's GPU path makes.
DEFINED = re.compile(r"^CALL(?:_\w+)?\((cu\w+)", re.M)


def pycuda_calls() -> set[str]:
    """Return the names of the driver's functions that PyCUDA is linked against."""
    package = find_spec("pycuda")
    assert package is not None
    assert package.origin is not None
    (extension,) = Path(package.origin).parent.glob("_driver*.so")
    with extension.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert section is not None
        symbols = section.iter_symbols()  # type: ignore[attr-defined]
        return {one.name for one in symbols if one.name.startswith("cu") and one["st_shndx"] == "SHN_UNDEF"}


def build(folder: Path) -> None:
    """Compile both libraries into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    defined = set(DEFINED.findall((HERE / "driver.cpp").read_text()))
    missing = sorted(pycuda_calls() - defined)
    (folder / "missing.inc").write_text("".join(f"MISSING({name})\n" for name in missing))
    core = [str(NATIVE / f"{name}.cpp") for name in CORE]
    for source, library, more in (("driver.cpp", "libcuda.so.1", core), ("nvml.cpp", "libnvidia-ml.so.1", [])):
        subprocess.run(
            [
                "g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", f'-DHOST="{HERE / "host.py"}"',
                f"-Wl,-soname,{library}", "-I", str(folder), "-I", str(NATIVE), "-o", str(folder / library),
                str(HERE / source), *more, "-ldl",
            ],
            check=True,
        )  # fmt: skip


if __name__ == "__main__":
    build(Path(sys.argv[1]))
