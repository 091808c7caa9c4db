"""Compiles CUDA C++ to PTX, machine code and resources, without a GPU."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cuda import pathfinder

from cudabench.compile import compiler, nvrtc, toolkit
from cudabench.compile.compiler import compile_cubin, compile_ptx, nvcc_version, supported_architectures
from cudabench.compile.names import wrong_name
from cudabench.compile.record import Backend, Compiled, Refused
from cudabench.errors import CompilerError, DeviceUnusable, NeedsArchitecture, UnsupportedFeature, UsageError

BACKENDS = [
    pytest.param("nvrtc", marks=pytest.mark.skipif(compiler.nvrtc_version() is None, reason="needs NVRTC")),
    pytest.param("nvcc", marks=pytest.mark.skipif(nvcc_version() is None, reason="needs nvcc and a host compiler")),
]
both = pytest.mark.parametrize("backend", BACKENDS)
# A call of nvcc takes seconds, so most tests with nvcc are slow; each rule has one test that is not.
rest_slow = pytest.mark.parametrize(
    "backend", [BACKENDS[0], pytest.param("nvcc", marks=[*BACKENDS[1].marks, pytest.mark.slow])]
)
ONE = "__global__ void g(float *a) { a[0] = 1; }\n"
NAMES = """\
struct A { int x; };
template <class T, int N> __global__ void f(T *x, A *, A *) { x[threadIdx.x] = N; }
__global__ void g(float *a) { a[0] = 0; }
__global__ void g(int *a, unsigned n) { a[0] = n; }
namespace q { __global__ void h(A *a, A *b) { a->x = b->x; } }
namespace { __global__ void hidden(int *x) { *x = 1; } }
extern "C" __global__ void e(int *x) { *x = 1; }
"""
WITH_MAIN = """\
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(x) do { cudaError_t e = (x); if (e) exit(1); } while (0)
#define HD __host__ __device__
HD float twice(float x) { return 2 * x; }
struct P { float a; __device__ float get() const { return a; } };
template <typename T, int N> __global__ void k(T *x, P p) { x[threadIdx.x] = twice(x[0]) * N + p.get(); }
static void launch(float *x, cudaStream_t s);
template <class T> void host(std::vector<T> &v) { v.clear(); }
int main() {
    std::vector<float> v;
    float *d;
    CHECK(cudaMalloc(&d, 4));
    k<float, 2><<<1, 1>>>(d, P{});
    return 0;
}
"""


@pytest.fixture
def without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as on a machine with NVRTC's wheel and without nvcc."""
    monkeypatch.setattr(toolkit, "nvcc", lambda: None)
    compiler._compile.cache_clear()


def entries(ptx: str) -> list[str]:
    """Return the names of the entries in a PTX text."""
    return re.findall(r"\.entry (\w+)", ptx)


@both
def test_names(backend: Backend) -> None:
    """Plain, extern "C", qualified, unnamed-namespace, overloaded and template names give the entry's name in the
    PTX."""
    names = ["f<float, 32>", "g(int*, unsigned)", "q::h", "hidden", "e"]
    compiled = compile_ptx(NAMES, "names.cu", names=names, backend=backend)
    f, g, h, hidden, e = (compiled.lowered[name] for name in names)
    assert (f, g, h, e) == ("_Z1fIfLi32EEvPT_P1AS3_", "_Z1gPij", "_ZN1q1hEP1AS1_", "e")
    assert "hidden" in hidden
    assert set(entries(compiled.ptx)) == {f, g, h, hidden, e, "_Z1gPf"}
    assert compiled.backend == backend
    assert compiled.version[0] >= 11


@pytest.mark.sampled(3)
@rest_slow
@pytest.mark.parametrize("name", ["nope", "nope<3>", "f<float>", "g"])
def test_wrong_names(backend: Backend, name: str) -> None:
    """A name that matches no kernel, or several, is refused with a list of the file's kernels."""
    with pytest.raises(UsageError, match=rf"'{name}' matches no kernel or several kernels of names.cu: use one"):
        compile_ptx(NAMES, "names.cu", names=["e", name], backend=backend)


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ('cudabench-names(3): error: identifier "g" is undefined\n', "g"),
        ("__nv_name_map(2): error: name\n  #pragma nv_mangled_name g\n", "g"),
        ('k.cu(7): error: identifier "x" is undefined\ncudabench-names(3): error: no instance\n', None),
        ("nvcc fatal : Unsupported gpu architecture 'compute_20'\n", None),
    ],
)
def test_a_wrong_name_is_the_only_fault(log: str, name: str | None) -> None:
    """An error about a kernel's name is recognised in both compilers' logs, but not beside another error of the
    file."""
    assert wrong_name(log, ["f", "g"]) == name


@rest_slow
def test_line_information(backend: Backend) -> None:
    """The PTX has the file name that the caller gave, and the source's own line numbers."""
    ptx = compile_ptx("\n\n" + ONE, "some where/k.cu", backend=backend).ptx
    assert re.findall(r'\.file\s+\d+\s+"([^"]*)"', ptx) == ["some where/k.cu"]
    assert re.search(r"\.loc\s+1 3 ", ptx)


@both
def test_errors_show_the_users_file_and_line(backend: Backend) -> None:
    """Each error starts with the user's file name and line and shows the source line; the count of errors is
    removed."""
    with pytest.raises(CompilerError) as caught:
        compile_ptx("__global__ void g(float *a) {\n    a[0] = b;\n    c = 1;\n}\n", "d/u.cu", backend=backend)
    heads = [line for line in str(caught.value).splitlines() if "error" in line]
    assert heads == ['d/u.cu:2: error: identifier "b" is undefined', 'd/u.cu:3: error: identifier "c" is undefined']
    assert "a[0] = b;" in str(caught.value)
    assert "detected" not in str(caught.value)


@rest_slow
def test_warnings(backend: Backend) -> None:
    """Warnings are in the log, with the user's file and line."""
    log = compile_ptx("__global__ void g(float *a) {\n    int unused;\n}\n", "u.cu", backend=backend).log
    assert log.startswith("u.cu:2: warning")
    assert compile_ptx(ONE, "u.cu", backend=backend).log == ""


@both
def test_resources(backend: Backend) -> None:
    """The record has registers, shared and local memory, barriers and the largest block, read from ptxas' report."""
    source = """
    extern "C" __global__ void __launch_bounds__(64, 2) used(float *a) {
        __shared__ float s[200];
        float l[100];
        for (int i = 0; i < 100; i++) l[(int)a[i]] = i;
        s[threadIdx.x] = a[0];
        __syncthreads();
        a[1] = s[3] + l[(int)a[2]];
    }
    extern "C" __global__ void plain(float *a) { a[0] = 1; }
    """
    report = dict(compile_cubin(source, "u.cu", backend=backend, names=["used", "plain"]).resources)
    used, plain = report.pop("used"), report.pop("plain")
    assert report == {}
    assert (used.shared_bytes, used.local_bytes, used.max_threads) == (800, 400, 64)
    assert used.registers > 4
    assert (used.barriers, plain.barriers) == (1, 0)
    assert (plain.shared_bytes, plain.local_bytes, plain.max_threads, plain.spill_loads) == (0, 0, None, 0)


@rest_slow
def test_too_much_shared_memory(backend: Backend) -> None:
    """A kernel with too much static shared memory is refused with its number of bytes."""
    source = "__global__ void g(float *a) { __shared__ float s[20000]; s[threadIdx.x] = a[0]; a[1] = s[a[2] > 0]; }"
    with pytest.raises(CompilerError, match=r"u.cu: .*(80000|0x13880)"):
        compile_cubin(source, "u.cu", backend=backend)


@both
def test_defines_and_includes(backend: Backend, tmp_path: Path) -> None:
    """Defines and headers reach the source; a define named T does not break CUDA's headers."""
    (tmp_path / "more").mkdir()
    (tmp_path / "beside.cuh").write_text("#define ONE 1\n")
    (tmp_path / "more" / "far.cuh").write_text("#define TWO 2\n")
    source = """
    #include "beside.cuh"
    #include <far.cuh>
    #ifndef FLAG
    #error no flag
    #endif
    __global__ void g(T *a) { a[0] = ONE + TWO + FLAG + 0x7F00; }
    """
    compiled = compile_ptx(
        source,
        str(tmp_path / "u.cu"),
        defines={"FLAG": "", "T": "unsigned short"},
        include_dirs=[str(tmp_path / "more")],
        backend=backend,
    )
    assert entries(compiled.ptx) == ["_Z1gPt"]


@pytest.mark.parametrize("name", ["TILE 3", "3D", "", "A-B"])
def test_bad_defines(name: str) -> None:
    """A define whose name is not an identifier never reaches the compiler's command line."""
    with pytest.raises(UsageError, match="is not a macro"):
        compile_ptx(ONE, "u.cu", defines={name: "1"})


def test_architectures() -> None:
    """A misspelt or too old architecture is refused with a list of the valid architectures."""
    with pytest.raises(UsageError, match="'hopper' is not a GPU architecture"):
        compile_ptx(ONE, "u.cu", arch="hopper")
    with pytest.raises(UsageError, match=r"sm_35: .* choose one of sm_.*sm_90"):
        compile_ptx(ONE, "u.cu", arch="sm_35")
    assert ".target sm_80" in compile_ptx(ONE, "u.cu", arch="compute_80").ptx
    assert "sm_90" in supported_architectures()


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("without_nvcc")
@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("", 'a[0] = M_PI + INFINITY + INT_MAX + (uint8_t)3 + (int64_t)4; printf("%d", 1); assert(a[0] > 0);'),
        ("cuda_runtime.h", ""),
        ("stdint.h", "uint32_t x = UINT32_MAX; a[0] = x;"),
        ("cstdint", "std::uint64_t x = 1; a[0] = x;"),
        ("math.h", "a[0] = sqrtf(M_PI) * NAN;"),
        ("cmath", "a[0] = std::sqrt(a[1]) + std::fabs(a[2]);"),
        ("stdio.h", 'printf("%f", a[0]);'),
        ("float.h", "a[0] = FLT_MAX;"),
        ("limits.h", "a[0] = INT_MIN;"),
        ("cuda_fp16.h", "a[0] = __half2float(__float2half(a[1]));"),
        pytest.param("cooperative_groups.h", "cooperative_groups::this_thread_block().sync();", marks=pytest.mark.slow),
        pytest.param("type_traits", "static_assert(std::is_same<float, float>::value);", marks=pytest.mark.slow),
    ],
)
def test_headers_with_the_wheel_alone(header: str, body: str) -> None:
    """Common headers compile without a toolkit and without a warning."""
    source = (f"#include <{header}>\n" if header else "") + f"__global__ void g(float *a) {{ {body} }}\n"
    compiled = compile_ptx(source, "u.cu")
    assert (compiled.backend, compiled.log) == ("nvrtc", "")
    assert not re.search(r'\.file\s+\d+\s+"/', compiled.ptx)


@pytest.mark.usefixtures("without_nvcc")
def test_host_code_with_the_wheel_alone() -> None:
    """A program with main() and standard containers compiles, since its kernels do not use them."""
    compiled = compile_ptx(WITH_MAIN, "main.cu", names=["k<float, 3>"])
    assert entries(compiled.ptx) == ["_Z1kIfLi3EEvPT_1P"]
    assert re.search(r"\.loc\s+1 8 ", compiled.ptx)


@pytest.mark.usefixtures("without_nvcc")
def test_headers_of_the_host(tmp_path: Path) -> None:
    """Host code in a header beside the source is left out; a header that only host code needs may be missing."""
    (tmp_path / "common.h").write_text(
        "#include <helper_timer.h>\nvoid check(cudaError_t e) { if (e) exit(1); }\n"
        "__device__ float two() { return 2; }\n"
    )
    source = '#include "common.h"\n__global__ void g(float *a) { a[0] = two(); }\nint main() { check(0); }\n'
    compiled = compile_ptx(source, str(tmp_path / "u.cu"), names=["g"])
    assert compiled.lowered == {"g": "_Z1gPf"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_nvcc")
def test_what_needs_nvcc() -> None:
    """Code that needs nvcc is refused with advice to install the toolkit; an error of the user's own code is not."""
    assert compile_ptx("#include <thrust/no_such>\n#include <mine.h>\n" + ONE, "u.cu").backend == "nvrtc"
    with pytest.raises(DeviceUnusable, match=r"(?s)u.cu:2: .*<thrust/no_such> .* -I, or .*install the CUDA toolkit"):
        compile_ptx("#include <thrust/no_such>\n" + ONE.replace("1", "thrust::no_such()"), "u.cu")
    with pytest.raises(CompilerError, match=r'(?s)u.cu:2: .*"MINE" is undefined.*no header <mine.h> .* with -I'):
        compile_ptx('#include "mine.h"\n' + ONE.replace("1", "MINE"), "u.cu")
    with pytest.raises(CompilerError, match=r'^u.cu:2: error: identifier "b" is undefined'):
        compile_ptx("int main() { return 0; }\n__global__ void g(float *a) { a[0] = b; }\n", "u.cu")
    with pytest.raises(DeviceUnusable, match="install the CUDA toolkit"):
        compile_ptx(ONE, "u.cu", backend="nvcc")


@pytest.mark.skipif(nvcc_version() is None, reason="needs nvcc and a host compiler")
def test_host_code_with_nvcc() -> None:
    """nvcc compiles the whole program; the PTX has the program's instance and the requested instance."""
    compiled = compile_ptx(WITH_MAIN, "main.cu", names=["k<float, 3>"], backend="nvcc")
    assert compiled.lowered == {"k<float, 3>": "_Z1kIfLi3EEvPT_1P"}
    assert sorted(entries(compiled.ptx)) == ["_Z1kIfLi2EEvPT_1P", "_Z1kIfLi3EEvPT_1P"]


# Parts of a file that the compiler refuses and no kernel needs --------------------------------------------------------

HOSTS = {
    "names": "#include <iostream>\nusing std::cout;\nFILE *fp;\nint start();\nint x = start();\nstd::vector<int> v;",
    "class": "#include <no_such.h>\nclass Net : public no::Such { int x; };\nNet net;\nno::Such make(Net);",
    "members": """struct M {
    M(int n) { cudaMalloc(&p, n); }
    ~M() { cudaFree(p); }
    std::vector<float> host() const;
    __device__ static float one() { return 1; }
    float *p;
};
__device__ float uses_m() { return M::one(); }""",
    "kernel": "texture<float> t;\n__global__ void other(float *a) { a[0] = tex1Dfetch(t, 0) + nothing; }",
    "lambda": "void f() { auto g = [=] __device__ (int i) { return i + missing; }; constexpr int n = 3; }",
    "header": "#include <thrust/device_vector.h>\n#include <torch/all.h>\nat::Tensor f(at::Tensor x) { return x; }",
    "macro": "#define K(n) __global__ void n(float *a) { a[0] = 1; }\nK(h)\nint main() { undeclared(); }",
}  # fmt: skip


@pytest.mark.sampled(8)
@rest_slow
@pytest.mark.parametrize("part", HOSTS)
def test_what_no_kernel_needs_is_left_out(backend: Backend, part: str) -> None:
    """Both compilers leave out a faulty part that no kernel needs; the requested kernel keeps its line number."""
    text = HOSTS[part] + "\n" + ONE
    compiled = compile_ptx(text, "u.cu", names=["g"], backend=backend)
    assert compiled.lowered == {"g": "_Z1gPf"}
    assert re.search(rf"\.loc\s+\d+ {text.count(chr(10))} ", compiled.ptx)


@rest_slow
def test_libraries_bring_cudas_types(backend: Backend) -> None:
    """The stand-in for a missing header of a library defines half and bfloat16, as the real header does."""
    text = "#include <cublas_v2.h>\ncublasHandle_t h;\n"
    text += "__global__ void g(__half *a, __nv_bfloat16 *b) { a[0] = (float)b[0]; }\n"
    assert compile_ptx(text, "u.cu", names=["g"], backend=backend).lowered == {"g": "_Z1gP6__halfP13__nv_bfloat16"}


@rest_slow
def test_errors_that_no_attempt_mended(backend: Backend) -> None:
    """The first cause is shown, without errors that follow from leaving out a function, and without host code."""
    text = (
        "#include <vector>\n__device__ float q() { return z; }\n__global__ void g(float *a) { a[0] = q(); }\nHost *h;\n"
    )
    with pytest.raises(CompilerError) as caught:
        compile_ptx(text + "int main() { nothing(); }\n", "u.cu", names=["g"], backend=backend)
    heads = [line for line in str(caught.value).splitlines() if "error" in line]
    assert heads == ['u.cu:2: error: identifier "z" is undefined']


@rest_slow
def test_headers_of_the_users_own_by_the_same_rule(backend: Backend, tmp_path: Path) -> None:
    """Host code of a header is left out; a header's macro that marks device functions is understood."""
    (tmp_path / "common.h").write_text(
        "#define DEV static __device__\nno::Such *handle;\nint begin = host_clock();\nDEV int two() { return 2; }\n"
    )
    text = '#include "common.h"\nDEV int three() { return two() + 1; }\n__global__ void g(int *a) { a[0] = three(); }\n'
    compiled = compile_ptx(text, str(tmp_path / "u.cu"), names=["g"], backend=backend)
    assert compiled.lowered == {"g": "_Z1gPi"}


@rest_slow
def test_languages(backend: Backend) -> None:
    """C++20 is tried where C++17 refuses; --std sets a language, and an unknown language is refused."""
    text = (
        "template <class T> concept Four = sizeof(T) == 4;\ntemplate <Four T> __global__ void g(T *a) { a[0] = 1; }\n"
    )
    assert compile_ptx(text, "u.cu", names=["g<float>"], backend=backend).lowered
    three = "__device__ consteval int f() { return 3; }\n__global__ void g(int *a) { a[0] = f(); }\n"
    assert compile_ptx(three, "u.cu", names=["g"], backend=backend).lowered
    with pytest.raises(CompilerError, match=r"u.cu:1: error"):
        compile_ptx(three, "u.cu", names=["g"], std="c++17", backend=backend)
    with pytest.raises(UsageError, match=r"--std c\+\+99 .* use one of c\+\+11"):
        compile_ptx(ONE, "u.cu", std="c++99")


@pytest.mark.slow
@pytest.mark.usefixtures("without_nvcc")
def test_collectives_of_cub_with_the_wheel_alone() -> None:
    """cub::BlockReduce compiles from <cub/cub.cuh>, although the header also has device-wide functions of the host."""
    text = """#include <cub/cub.cuh>
    __global__ void g(float *a) {
        __shared__ typename cub::BlockReduce<float, 64>::TempStorage storage;
        a[0] = cub::BlockReduce<float, 64>(storage).Sum(a[threadIdx.x]);
    }
    void f(float *a) { size_t n; cub::DeviceReduce::Sum(nullptr, n, a, a, 3); }
    """
    assert compile_ptx(text, "u.cu", names=["g"]).backend == "nvrtc"


@pytest.mark.usefixtures("without_nvcc")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVRTC and nvcc the error says what to install."""
    nvrtc.load.cache_clear()
    monkeypatch.setattr(toolkit, "nvrtc", lambda: "libno-such-nvrtc.so")
    with pytest.raises(DeviceUnusable, match="pip install nvidia-cuda-nvrtc"):
        compile_ptx(ONE, "u.cu")
    assert compiler.nvrtc_version() is None
    nvrtc.load.cache_clear()


def test_a_search_that_fails_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If pathfinder fails, for instance because the machine is busy, headers are found by the other ways."""

    def waits(library: str) -> str:
        raise ChildProcessError("Canary probe child process timed out after 10.0 seconds.")

    texts = "#include <curand_kernel.h>\n"
    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda library: None)
    elsewhere = toolkit.headers(), toolkit.device_library_headers(texts)
    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", waits)
    assert (toolkit.headers(), toolkit.device_library_headers(texts)) == elsewhere


def test_headers_are_unpacked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's own headers are unpacked into the user's cache in one step, and only once."""
    monkeypatch.delenv("CUDABENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = nvrtc.Library(nvrtc.load().library)
    if not library.bundles_headers:
        pytest.skip("this NVRTC bundles no headers")
    folder = library.headers
    assert folder is not None
    assert (folder / "cuda_fp16.h").is_file()
    assert [path.name for path in (tmp_path / "cudabench").iterdir()] == [folder.name]
    stamp = (folder / "cuda_fp16.h").stat().st_mtime_ns
    again = nvrtc.Library(library.library).headers
    assert again == folder
    assert (folder / "cuda_fp16.h").stat().st_mtime_ns == stamp


def test_import_is_cheap() -> None:
    """Importing the module loads neither NumPy nor ctypes."""
    code = "import sys, cudabench.compile.compiler; sys.exit(bool({'numpy', 'ctypes'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@rest_slow
def test_machine_code_is_that_of_the_ptx(backend: Backend) -> None:
    """One compile gives PTX, machine code with line information, and each entry's resources."""
    text = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
    compiled = compile_cubin(text, "twice.cu", arch="sm_80", names=["twice"], backend=backend)
    assert compiled.ptx == compile_ptx(text, "twice.cu", arch="sm_80", names=["twice"], backend=backend).ptx
    assert compiled.cubin is not None
    assert compiled.cubin.startswith(b"\x7fELF")
    assert b".text.twice\0" in compiled.cubin
    assert b".debug_line\0" in compiled.cubin
    assert set(compiled.resources) == {"twice"}
    assert b"cudabench_name" not in compiled.cubin
    assert compile_ptx(text, "twice.cu", backend=backend).cubin is None


# On a GPU, PyCUDA runs nvcc: here nvcc runs with PyCUDA's arguments --------------------------------------------------


def as_pycuda_does(text: str, folders: Sequence[str], options: Sequence[str], architecture: str) -> bytes:
    """Compile a text in a temporary folder, as PyCUDA does."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.cu").write_text(text)
        done = subprocess.run(
            [
                str(toolkit.nvcc()),
                "--cubin",
                "-lineinfo",
                *options,
                "-arch",
                architecture,
                *(f"-I{one}" for one in folders),
                "kernel.cu",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Refused(done.stdout + done.stderr)
        return Path(folder, "kernel.cubin").read_bytes()


ON_GPU = [
    pytest.param(as_pycuda_does, marks=[*BACKENDS[1].marks, pytest.mark.slow], id="pycuda"),
    pytest.param(None, marks=BACKENDS[0].marks, id="nvrtc"),
]


@pytest.fixture(params=ON_GPU)
def for_gpu(request: pytest.FixtureRequest) -> Callable[..., Compiled]:
    """Compile as for a GPU: once with nvcc through PyCUDA, once with NVRTC."""

    def compile(source: str, filename: str, **options: Any) -> Compiled:
        if request.param is None:
            return compile_cubin(source, filename, backend="nvrtc", build=as_pycuda_does, **options)
        return compile_cubin(source, filename, build=request.param, **options)

    return compile


def test_names_on_a_gpu(for_gpu: Callable[..., Compiled]) -> None:
    """The machine code has the entry of each requested name: overload, template, qualified and extern "C"; defines
    apply."""
    names = ["f<float, 32>", "g(int*, unsigned)", "q::h", "e"]
    compiled = for_gpu(
        NAMES.replace("x[threadIdx.x] = N", "x[threadIdx.x] = N + MORE"), "n.cu", names=names, defines={"MORE": ""}
    )
    assert [compiled.lowered[name] for name in names] == ["_Z1fIfLi32EEvPT_P1AS3_", "_Z1gPij", "_ZN1q1hEP1AS1_", "e"]
    assert compiled.cubin is not None
    for entry in compiled.lowered.values():
        assert f".text.{entry}\0".encode() in compiled.cubin
    with pytest.raises(UsageError, match=r"'f<float>' matches no kernel or several kernels of n.cu: use one of"):
        for_gpu(NAMES, "n.cu", names=["e", "f<float>"])


@pytest.mark.slow
def test_host_code_on_a_gpu(for_gpu: Callable[..., Compiled], tmp_path: Path) -> None:
    """A program whose main() needs missing headers compiles for a GPU, with host code in the file and in a header."""
    (tmp_path / "common.h").write_text(
        "#include <helper_timer.h>\nvoid check(cudaError_t e) { if (e) stop(1); }\n"
        "__device__ float two() { return 2; }\n"
    )
    source = (
        '#include <opencv2/core.hpp>\n#include "common.h"\n__global__ void g(float *a) { a[0] = two(); }\n'
        "int main() { cv::Mat m; check(0); }\n"
    )
    compiled = for_gpu(source, str(tmp_path / "u.cu"), names=["g"])
    assert compiled.lowered == {"g": "_Z1gPf"}
    bare = for_gpu(
        "__global__ void g(float *a) { a[0] = 1; }\nint main() { return undeclared(); }\n", "u.cu", names=["g"]
    )
    assert bare.lowered == {"g": "_Z1gPf"}


@pytest.mark.slow
def test_errors_on_a_gpu(for_gpu: Callable[..., Compiled]) -> None:
    """The error shows the user's line; a missing header that was taken as empty is named."""
    with pytest.raises(CompilerError) as plain:
        for_gpu("__global__ void g(float *a) {\n    a[0] = b;\n}\n", "u.cu")
    assert str(plain.value).splitlines()[0] == 'u.cu:2: error: identifier "b" is undefined'
    with pytest.raises(CompilerError) as empty:
        for_gpu("#include <helper.h>\n__global__ void g(float *a) { a[0] = b; }\nint main() { help(); }\n", "u.cu")
    assert str(empty.value).splitlines()[0] == 'u.cu:2: error: identifier "b" is undefined'
    assert "u.cu: no header <helper.h> was found and it was taken as empty" in str(empty.value).splitlines()[-1]
    with pytest.raises(CompilerError, match=r"(?s)^u.cu:2: .*<mine\.h>.* with -I"):
        for_gpu('#include "mine.h"\n' + ONE.replace("1", "MINE"), "u.cu")


def test_one_compiler_can_be_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDABENCH_COMPILER selects the compiler for a GPU and for the simulator; an unknown word is refused."""
    monkeypatch.setenv("CUDABENCH_COMPILER", "clang")
    with pytest.raises(UsageError, match="CUDABENCH_COMPILER=clang is not a compiler"):
        compile_ptx(ONE, "u.cu")
    for word, installed in (("nvrtc", compiler.nvrtc_version()), ("nvcc", nvcc_version())):
        monkeypatch.setenv("CUDABENCH_COMPILER", word)
        assert compiler.gpu_backend() == word
        if installed:
            assert compile_ptx(ONE, "u.cu").backend == word


@pytest.mark.usefixtures("without_nvcc")
def test_nvrtc_serves_a_gpu_without_nvcc() -> None:
    """Without nvcc, NVRTC compiles for a GPU and PyCUDA is not called."""

    def build(text: str, folders: Sequence[str], options: Sequence[str], architecture: str) -> bytes:
        raise AssertionError("PyCUDA has no nvcc to run")

    compiled = compile_cubin(ONE, "u.cu", names=["g"], build=build)
    assert (compiled.backend, compiled.lowered) == ("nvrtc", {"g": "_Z1gPf"})
    assert compiled.cubin is not None


WARP_GROUPS = """#define NAME %s
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define THEN brkpt
#else
#define THEN nosuch
#endif
#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
extern "C" __global__ void f(float *o)
{
    asm volatile(TEXT_OF(NAME) ".fence.sync.aligned; " TEXT_OF(THEN) ";" ::: "memory");
}
"""


@pytest.mark.slow
def test_the_architecture_that_a_text_asks_for(for_gpu: Callable[..., Compiled]) -> None:
    """A text that uses wgmma is compiled for sm_90a, also if only ptxas finds the use; an architecture of another
    generation is refused with an error that names the instruction."""
    with_words = WARP_GROUPS % "wgmma"
    hidden = WARP_GROUPS.replace("ifdef", "ifndef").replace("FEAT_SM90", "NO") % "wg##mma"
    hidden = hidden.replace("#define TEXT(x) #x", "#define TEXT(x) #x\n#define PASTE(a, b) a##b")
    hidden = hidden.replace("wg##mma", "PASTE(wg, mma)")
    for text in (with_words, hidden):
        assert for_gpu(text, "w.cu", names=["f"]).cubin
        for arch in ("sm_80", "sm_100"):
            with pytest.raises(NeedsArchitecture, match=rf"w.cu uses wgmma.fence, which only .* 9.0 .* {arch}: run"):
                for_gpu(text.replace("nosuch", "brkpt"), "w.cu", names=["f"], arch=arch)
    assert issubclass(NeedsArchitecture, UnsupportedFeature)


@rest_slow
def test_more_than_ten_names(backend: Backend) -> None:
    """Each of twelve requested kernels has its entry."""
    text = "\n".join(f"__global__ void k{number}(int *o) {{ o[0] = {number}; }}" for number in range(12))
    names = [f"k{number}" for number in range(12)]
    assert set(compile_ptx(text, "many.cu", names=names, backend=backend).lowered) == set(names)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_what_lies_beside_nvrtc_is_loaded_with_it(tmp_path: Path) -> None:
    """NVRTC's builtins library is loaded from NVRTC's folder, since the wheels of 13.0 do not record where it is."""
    for name, source in (("libnvrtc-builtins.so.13.0", ""), ("libnvrtc.so.13", "const char *nvrtcGetErrorString;")):
        made = ["gcc", "-shared", "-x", "c", "-", f"-Wl,-soname,{name}", "-o", str(tmp_path / name)]
        subprocess.run(made, input=source, text=True, check=True)
    load = (
        "import ctypes; from cudabench.compile import nvrtc;"
        f"nvrtc.open_library({str(tmp_path / 'libnvrtc.so.13')!r}); ctypes.CDLL('libnvrtc-builtins.so.13.0')"
    )
    ran = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@both
def test_dot_products_without_optimisation(backend: Backend) -> None:
    """__dp4a and __dp2a compile to the same instructions without optimisation as with it, on sm_90 too."""
    calls = []
    for number, char, short in (("int", "char4", "short2"), ("unsigned", "uchar4", "ushort2")):
        for name, wide in (("__dp4a", char), ("__dp2a_lo", short), ("__dp2a_hi", short)):
            calls += [f"{name}(({number})x[0], ({number})x[1], ({number})x[2])"]
            calls += [f"{name}(*({wide} *)x, *({char} *)(x + 1), ({number})x[2])"]
    stores = "".join(f"  y[{i}] = {call};\n" for i, call in enumerate(calls))
    text = f"__global__ void k(int *x, int *y) {{\n{stores}}}\n"
    found = [
        re.findall(r"\bdp[24]a\.[\w.]+", compile_ptx(text, "k.cu", arch="sm_90", debug=debug, backend=backend).ptx)
        for debug in (False, True)
    ]
    assert len(found[0]) == len(calls)
    assert Counter(found[0]) == Counter(found[1])


def test_what_was_compiled_before_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile does not depend on earlier ones: after a text that NVRTC refuses without optimisation, the next text
    still gets its loops unrolled and its array in registers."""
    monkeypatch.setenv("CUDABENCH_CACHE", "off")
    turns = "__global__ void turn(float *x) { float v[16];\n#pragma unroll\nfor (int i = 0; i < 16; i++) v[i] = x[i];\n"
    turns += "#pragma unroll\nfor (int i = 0; i < 16; i++) { float s = 0;\n#pragma unroll\n"
    turns += "for (int j = 0; j < 16; j++) s += v[(i + j) % 16] * v[j]; x[i] = s; } }"
    dots = "#undef __dp4a\n__global__ void dots(unsigned *x) { x[0] = __dp4a(x[1], x[2], x[3]); }"
    with contextlib.suppress(CompilerError):
        compile_ptx(dots, "dots.cu", arch="sm_90", debug=True, backend="nvrtc")
    assert ".local" not in compile_ptx(turns, "turn.cu", arch="sm_90", backend="nvrtc").ptx


@pytest.mark.slow
@both
def test_a_missing_header_above_the_header_that_includes_it(backend: Backend, tmp_path: Path) -> None:
    """A missing `../gone.h` that a header in a folder includes is taken as empty, like a missing header of the
    source."""
    near = tmp_path / "sub" / "near.h"
    near.parent.mkdir()
    near.write_text('#include "../gone.h"\nstatic __device__ int two() { return 2; }\n')
    text = '#include "sub/near.h"\n__global__ void k(int *x) { *x = two(); }\n'
    compiled = compile_ptx(text, str(tmp_path / "k.cu"), arch="sm_90", names=["k"], backend=backend)
    assert compiled.backend == backend
    assert not (tmp_path / "gone.h").exists()
