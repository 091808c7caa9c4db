"""A text is cut into words once, however many of its types and kernels are asked for."""

from cudabench.toolchain import preprocess, reached, source, tokens
from cudabench.userkernel import by_value

KERNELS = "\n".join(f"__global__ void k{at}(float *x) {{ helper(x); }}" for at in range(20))


def test_large_text_is_lexed_once_for_all_kernels():
    """What 20 kernels of a large text reach takes one lexing of it, and one pass over its functions."""
    text = "__device__ void helper(float *x) { inner = *x; }\n" + KERNELS + f"\n// {'.' * (1 << 18)}\n"
    before = tokens._lexed_large.cache_info().misses
    kernels = source.parse(text, "t.cu").kernels
    assert len(kernels) == 20
    assert all("inner" in reached.names(text, kernel) for kernel in kernels)
    assert tokens._lexed_large.cache_info().misses == before + 1


def test_header_is_lexed_once_for_all_macros(tmp_path, monkeypatch):
    """A header that is read with other macros and from other files is not cut into words again."""
    (tmp_path / "once_only.h").write_text("#ifdef A\nint a;\n#else\nint b;\n#endif\n")
    lexed = []
    original = preprocess._words_by_line
    monkeypatch.setattr(preprocess, "_words_by_line", lambda text: lexed.append(text) or original(text))
    found = [
        preprocess.expand(f'#include "once_only.h"\nint c{at};\n', tmp_path / "t.cu", {"A": ""} if at % 2 else {})
        for at in range(4)
    ]
    assert ["int a" in str(one) for one in found] == [False, True, False, True]
    assert sum("#ifdef A" in text for text in lexed) == 1


def test_structs_of_a_text_are_found_in_one_pass():
    """Layouts of all structs of a text share one pass over it; the first declaration of a name is the one."""
    text = "\n".join(f"struct S{at} {{ float a[{at + 1}]; }};" for at in range(30))
    text += "\nstruct S3 { double other; };\ntypedef struct { int x, y; } Pair;\n"
    text += "template <typename T, int N> struct alignas(16) Box { T held[N]; };\n"
    before = by_value._declared.cache_info().misses
    layouts = [by_value.layout_of(f"S{at}", text, {}) for at in range(30)]
    assert [one and one.size for one in layouts] == [4 * (at + 1) for at in range(30)]
    pair, box = by_value.layout_of("Pair", text, {}), by_value.layout_of("Box<float, 3>", text, {})
    assert (pair and pair.size, box and (box.size, box.align)) == (8, (16, 16))
    assert by_value._declared.cache_info().misses == before + 1
