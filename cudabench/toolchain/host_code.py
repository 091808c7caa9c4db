"""The part of a source that is for the host: a kernel does not need it, and NVRTC does not take it."""

from __future__ import annotations

import re

from cudabench.toolchain.source import declarations

_DEVICE_WORDS = {"__global__", "__device__", "__constant__", "__shared__", "__managed__", "constexpr", "consteval"}
# Of the host's runtime and libraries; a class or variable that speaks of them is none of a kernel's.
_HOST_WORD = re.compile(
    r"cu(da|blas|fft|rand|sparse|solver|dnn)[A-Z]\w*|(vector|string|map|ostream|thread|chrono|nullopt)$"
)


def without_host_code(source: str) -> str:
    """Blank out the host's part of a file, keeping every line where it is.

    That are functions at namespace scope without `__global__`, `__device__` or constexpr, and without a macro of the
    file that writes one of them; and classes and variables without these that use the host's runtime or library.
    Methods of other classes stay: they are compiled for the device.
    """
    text = source
    for declaration in declarations(source):
        hosts = declaration.function or any(map(_HOST_WORD.match, declaration.words))
        if hosts and not _DEVICE_WORDS & declaration.words:
            span = slice(declaration.start, declaration.end)
            text = text[: span.start] + re.sub(r"[^\n]", " ", text[span]) + text[span.stop :]
    return text
