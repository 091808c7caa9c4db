"""What the strides of a kernel's arrays may be, by their names and use: for lines that messages suggest.

With a stride of 1 the rows of an array lie upon each other, and a right kernel races. A convolution's stride is none of
an array.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudabench.userkernel.suggested.reach import joined

_CONVOLVES = re.compile(r"pad(?:ding)?(?:_?\w)?$|dilation|^[pd]\d$|k(?:ernel)?_?size|_out$|out_")
_NUMBERED = re.compile(r"(?:\w+_)?(?P<kind>s|nb|stride_?)(?P<tensor>\d?)(?P<axis>\d)$")
_NAMED = re.compile(
    r"(?:(?P<array>\w+?)_)?(?:(?P<of>\w+)_)?(?:stride|pitch|ld)(?:_(?P<axis>\w+))?$|^ld\w$|\w+(?:Stride|Pitch)$"
)
_STEP = re.compile(r"\w*step$", re.I)  # OpenCV's word; of a loop elsewhere
_BYTES = r"\b(?:u?char|u?int8_t|std ?:: ?byte) ?(?:const ?)?\* ?[)>][^;]*\b{}\b"
_OUTER = re.compile(r"batch|seq|outer|plane|slice|frame", re.I)


def strides(names: Sequence[str], side: int, text: str = "", width: int = 1) -> dict[str, int]:
    """Return the strides among parameters of whole numbers, for arrays whose every axis is `side` long.

    `s2` and `nb02` step along the axis 2, `nb` in bytes of four an element; of named ones those of a batch are larger.
    One that the kernel's `text` adds to a pointer to bytes, as `(char *)rows + y * pitch`, is for elements of `width`
    bytes.
    """
    if any(_CONVOLVES.search(name.lower()) for name in names):
        return {}
    found = {}
    for name in names:
        numbered, named = _NUMBERED.match(name), _NAMED.match(name)
        if numbered:
            found[name] = side ** int(numbered["axis"]) * (4 if numbered["kind"] == "nb" else 1)
        elif named:
            found[name] = side ** (2 if _OUTER.search(name) else 1)
        elif _STEP.match(name) and re.search(rf"\*\s*{name}\s*\+|\b{name}\s*\*\s*\w+\s*\+", text):
            found[name] = side
        if named and re.search(_BYTES.format(name), joined(text)):
            found[name] *= width
    return found
