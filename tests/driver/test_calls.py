"""The simulated driver itself: independent PyCUDA programs, and the status codes of CUDA."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.driver

START = """
import ctypes, gc, threading
import numpy as np
import pycuda.driver as cuda
from pycuda.compiler import SourceModule, compile

cuda.init()
library = ctypes.CDLL("libcuda.so.1")

def said(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except cuda.Error as error:
        return str(error).split(" - ")[0].split("\\n")[0]
    return "no error"
"""
IN_CONTEXT = START + "context = cuda.Device(0).make_context()\nimport atexit; atexit.register(context.pop)\n"


def script(text: str, start: str = IN_CONTEXT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a separate process without coverage, as it does not belong to this project; gpuarray's kernels
    include their PTX by a variable of PyCUDA."""
    inherited = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
    return subprocess.run(
        [sys.executable, "-c", start + text],
        capture_output=True,
        text=True,
        timeout=120,
        env={**inherited, "PYCUDA_DEFAULT_NVCC_FLAGS": "-lineinfo", **environment},
    )


def passes(text: str, start: str = IN_CONTEXT, **environment: str) -> str:
    """Run a program that must exit with 0 and without output on standard error; return its output."""
    ran = script(text, start, **environment)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    return ran.stdout


def test_a_program_with_a_module_and_its_variables() -> None:
    """A SourceModule's kernel reads arguments, and a variable and a constant that the host set, and prints."""
    out = passes("""
module = SourceModule('''
#include <stdio.h>
__device__ int factor = 3;
__constant__ float offset[2];
__global__ void f(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i] * factor + offset[1];
    if (i == 7)
        printf("seven %d\\\\n", factor);
}
''')
f = module.get_function("f")
x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
cuda.memcpy_htod(module.get_global("offset")[0], np.float32([7, 8]))
for factor in (3, 5):
    cuda.memcpy_htod(module.get_global("factor")[0], np.int32(factor).tobytes())
    y[:] = 1
    f(np.float32(2), cuda.In(x), cuda.InOut(y), np.int32(1000), grid=(4, 1), block=(256, 1, 1))
    assert np.array_equal(y, 2 * x + factor + 8), y
held = np.zeros(1, np.int32)
cuda.memcpy_dtoh(held, module.get_global("factor")[0])
assert held[0] == 5 and module.get_global("factor")[1] == 4
print(f.num_regs > 0, f.max_threads_per_block)
print(said(module.get_function, "g"))
print(said(module.get_global, "nothing"))
""")
    assert out.splitlines() == [
        "seven 3", "seven 5", "True 1024", "cuModuleGetFunction failed: named symbol not found",
        "cuModuleGetGlobal failed: named symbol not found",
    ]  # fmt: skip


def test_arrays_on_the_gpu() -> None:
    """PyCUDA's elementwise kernels, reductions and slices of arrays give the results of NumPy."""
    passes("""
import pycuda.gpuarray as gpuarray
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel
a = np.arange(1000, dtype=np.float32)
x = gpuarray.to_gpu(a)
assert np.allclose((2 * x + x * x - 1).get(), 2 * a + a * a - 1)
assert gpuarray.sum(x).get() == a.sum() and gpuarray.max(x).get() == 999
ElementwiseKernel("float *x, float by", "x[i] = x[i] * by", "scaled")(x, 3)
assert np.array_equal(x[10:20].get(), 3 * a[10:20])
dot = ReductionKernel(np.float32, "0", "a+b", "x[i] * x[i]", "const float *x")
assert np.isclose(dot(x).get(), (9 * a * a).sum(), rtol=1e-5)
""")


def test_a_module_without_ptx() -> None:
    """Machine code without PTX gives CUDA's status for a missing image, and the message says which option to add."""
    ran = script("print(said(SourceModule, '__global__ void f(int *x) { x[0] = 1; }'))", PYCUDA_DEFAULT_NVCC_FLAGS="")
    assert "no kernel image is available for execution on the device" in ran.stdout
    assert "the machine code carries no PTX, which the simulator needs: compile with -lineinfo" in ran.stderr


def test_streams_and_events() -> None:
    """Work waits for events of other streams, and for the default stream unless its stream is non-blocking; events give
    their order in time. Queued work on destroyed objects still runs."""
    passes("""
module = SourceModule("__global__ void add(int *x, int by) { x[0] += by; }")
add = module.get_function("add").prepare("Pi")
one, two = cuda.Stream(), cuda.Stream()
x = cuda.mem_alloc(4)
cuda.memset_d32(x, 0, 1)
host, later = cuda.pagelocked_zeros(1, np.int32), cuda.pagelocked_zeros(1, np.int32)
def value():
    out = np.zeros(1, np.int32)
    cuda.memcpy_dtoh(out, x)
    return int(out[0])

# From page-locked memory a copy reads when it runs, from other memory at once.
cuda.memcpy_htod_async(x, host, one)
host[0] = 5
one.synchronize()
assert value() == 5
plain = np.full(1, 7, np.int32)
cuda.memcpy_htod_async(x, plain, one)
plain[0] = 8
del plain
assert value() == 7
# To other memory than page-locked it is done when the call returns.
plain = np.zeros(1, np.int32)
cuda.memcpy_dtoh_async(plain, x, two)
assert plain[0] == 7

# An event and a stream that are gone; only the second stream is waited for.
done = cuda.Event()
add.prepared_async_call((1, 1), (1, 1, 1), one, x, 1)
done.record(one)
two.wait_for_event(done)
cuda.memcpy_dtoh_async(later, x, two)
del done, one
gc.collect()
assert later[0] == 0
two.synchronize()
assert later[0] == 8, later

# The default stream waits for a blocking one, and a non-blocking one for nobody.
free, blocking = ctypes.c_void_p(), cuda.Stream()
assert library.cuStreamCreate(ctypes.byref(free), 1) == 0
add.prepared_async_call((1, 1), (1, 1, 1), blocking, x, 10)
assert library.cuStreamSynchronize(free) == 0
cuda.memcpy_dtoh_async(later, x, two)
assert value() == 18

# Times.
start, middle, end = cuda.Event(), cuda.Event(), cuda.Event()
start.record()
assert said(end.time_since, start) != "no error"
for _ in range(3):
    add.prepared_call((1, 1), (1, 1, 1), x, 0)
middle.record()
add.prepared_call((1, 1), (1, 1, 1), x, 0)
end.record()
assert "device not ready" in said(end.time_since, start)
end.synchronize()
assert 0 < middle.time_till(end) < start.time_till(middle) < 1
assert abs(start.time_till(end) - start.time_till(middle) - middle.time_till(end)) < 1e-6
untimed = cuda.Event(cuda.event_flags.DISABLE_TIMING)
untimed.record()
untimed.synchronize()
assert "invalid resource handle" in said(untimed.time_since, start)
""")


def test_graphs() -> None:
    """A graph keeps its launches after the graph, its events and its stream are destroyed. A call that is invalid
    during capture fails, and a stream that waits for a captured event joins the capture."""
    passes("""
module = SourceModule("__global__ void add(int *x, int by) { x[0] += by; }")
add = module.get_function("add").prepare("Pi")
x = cuda.mem_alloc(4)
cuda.memset_d32(x, 0, 1)
one, two, out = cuda.Stream(), cuda.Stream(), np.zeros(1, np.int32)
graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
handle = ctypes.c_void_p(one.handle)
assert library.cuStreamBeginCapture_v2(handle, 1) == 0
add.prepared_async_call((1, 1), (1, 1, 1), one, x, 1)
event = cuda.Event()
event.record(one)
assert library.cuStreamSynchronize(handle) == 900
assert "last recorded in a capturing stream" in said(event.synchronize)
two.wait_for_event(event)
add.prepared_async_call((1, 1), (1, 1, 1), two, x, 10)
assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
assert library.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_ulonglong(0)) == 0
assert library.cuGraphDestroy(graph) == 0
assert library.cuGraphDestroy(graph) == 400
del event
two.synchronize()
cuda.memcpy_dtoh(out, x)
assert out[0] == 0
for _ in range(2):
    assert library.cuGraphLaunch(ready, handle) == 0
assert library.cuGraphExecDestroy(ready) == 0
del one
cuda.memcpy_dtoh(out, x)
assert out[0] == 22, out
""")


def test_pitched_and_page_locked_memory() -> None:
    """Copies and fills work between pitches and from a place within rows; host memory can be page-locked and mapped."""
    passes("""
place, pitch = cuda.mem_alloc_pitch(100 * 4, 20, 4)
assert pitch == 512
source = np.arange(2000, dtype=np.float32).reshape(20, 100)
copy = cuda.Memcpy2D()
copy.set_src_host(source)
copy.set_dst_device(place)
copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 400, pitch, 400, 20
copy(aligned=True)
part = np.zeros((10, 50), np.float32)
copy = cuda.Memcpy2D()
copy.set_src_device(place)
copy.set_dst_host(part)
copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = pitch, 200, 200, 10
copy.src_x_in_bytes, copy.src_y = 200, 5
copy(aligned=False)
assert np.array_equal(part, source[5:15, 50:])
copy.height = 100
assert "invalid argument" in said(copy, aligned=False)
cuda.memset_d2d32(place, pitch, 0, 100, 20)
copy.height = 10
copy(aligned=False)
assert not part.any()

boxes = np.arange(4 * 3 * 8, dtype=np.uint8).reshape(4, 3, 8)
there = cuda.mem_alloc(boxes.nbytes)
copy = cuda.Memcpy3D()
copy.set_src_host(boxes)
copy.set_dst_device(there)
copy.src_pitch = copy.dst_pitch = copy.width_in_bytes = 8
copy.src_height = copy.dst_height = copy.height = 3
copy.depth = 4
copy()
back = np.zeros_like(boxes)
cuda.memcpy_dtoh(back, there)
assert np.array_equal(back, boxes)

module = SourceModule("__global__ void twice(int *x) { x[threadIdx.x] *= 2; }")
mapped = cuda.pagelocked_empty(1024, np.int32, mem_flags=cuda.host_alloc_flags.DEVICEMAP)
own = np.empty(1024, np.int32)
place, size = ctypes.c_void_p(own.ctypes.data), ctypes.c_size_t(own.nbytes)
assert library.cuMemHostRegister_v2(place, size, 2) == 0
assert library.cuMemHostRegister_v2(place, size, 2) == 712
pointer = ctypes.c_uint64()
assert library.cuMemHostGetDevicePointer_v2(ctypes.byref(pointer), place, 0) == 0
for array, pointer in ((own, pointer.value), (mapped, mapped.base.get_device_pointer())):
    array[:] = np.arange(1024)
    module.get_function("twice")(np.intp(pointer), grid=(1, 1), block=(1024, 1, 1))
    context.synchronize()
    assert np.array_equal(array, 2 * np.arange(1024))
assert library.cuMemHostUnregister(place) == 0
assert library.cuMemHostUnregister(place) == 713
""")


FAULTS = """
SOURCE = '''
#include <assert.h>
extern "C" __global__ void fine(int *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void far(int *x) { x[1 << 20] = 1; }
extern "C" __global__ void odd(int *x) { *(long long *)(x + 1) = 1; }
extern "C" __global__ void trap(int *x) { if (x) __trap(); }
extern "C" __global__ void check(int *x) { assert(!x); }
extern "C" __global__ void __launch_bounds__(128) small(int *x) { x[0] = 1; }
extern "C" __global__ void shared(int *x)
{
    extern __shared__ int more[];
    __shared__ int some[5000];
    some[threadIdx.x] = more[threadIdx.x] = 1;
    __syncthreads();
    x[0] = some[31 - threadIdx.x] + more[31 - threadIdx.x];
}
'''
cubin = compile(SOURCE, options=["-lineinfo"], no_extern_c=True, arch="sm_87")
"""


def test_faults_end_a_context() -> None:
    """The next call that waits for a faulty kernel, and every later call of its context, returns CUDA's status of the
    fault; another context of the device still works."""
    out = script(
        FAULTS
        + """
for name in ("far", "odd", "trap", "check"):
    context = cuda.Device(0).make_context()
    module = cuda.module_from_buffer(cubin)
    x = cuda.mem_alloc(400)
    module.get_function(name)(x, grid=(1, 1), block=(1, 1, 1))
    print(name, said(context.synchronize), "|", said(cuda.memset_d32, x, 0, 1), "|", said(cuda.mem_alloc, 4))
    cuda.Context.pop()
context = cuda.Device(0).make_context()
x = cuda.mem_alloc(400)
cuda.module_from_buffer(cubin).get_function("fine")(x, grid=(1, 1), block=(100, 1, 1))
out = np.zeros(100, np.int32)
cuda.memcpy_dtoh(out, x)
print("fine", out.sum())
import os, sys
sys.stdout.flush()
os._exit(0)  # without PyCUDA's warnings of objects in lost contexts
""",
        START,
    )
    lost = {
        "far": "an illegal memory access was encountered",
        "odd": "misaligned address",
        "trap": "unspecified launch failure",
        "check": "device-side assert triggered",
    }
    *lines, last = out.stdout.splitlines()
    assert last == "fine 100", out.stderr
    for (name, text), line in zip(lost.items(), lines, strict=True):
        assert line.split(" ", 1)[0] == name
        assert [part.split(": ", 1)[1].strip() for part in line.split("|")] == [text] * 3, line


def test_launches_that_cannot_be() -> None:
    """A launch over the device's limits is an invalid argument, a launch over the kernel's limits lacks resources; the
    context stays usable after both."""
    out = passes(
        FAULTS
        + """
module = cuda.module_from_buffer(cubin)
x = cuda.mem_alloc(4000)
fine, small, shared = (module.get_function(name) for name in ("fine", "small", "shared"))
def launch(function, grid, block, shared=0):
    function.prepare("P")
    print(said(function.prepared_call, grid, block, x, shared_size=shared).partition(": ")[2] or "fine")
launch(fine, (1, 1), (1000, 1, 1))
launch(fine, (1, 1), (1025, 1, 1))
launch(fine, (1, 1), (32, 1, 65))
launch(fine, (1, 1), (0, 1, 1))
launch(fine, (1, 65536), (1, 1, 1))
launch(small, (1, 1), (129, 1, 1))
launch(shared, (1, 1), (32, 1, 1), 48 * 1024 - 20000)
launch(shared, (1, 1), (32, 1, 1), 48 * 1024)
attribute = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
most = cuda.Device(0).get_attribute(cuda.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
print(said(shared.set_attribute, attribute, most))
print(said(shared.set_attribute, attribute, most - 20000))
launch(shared, (1, 1), (32, 1, 1), 48 * 1024)
shared.prepare("PP")
fine.prepare("")
context.synchronize()
"""
    )
    assert out.splitlines() == [
        "fine", *["invalid argument"] * 4, "too many resources requested for launch", "fine", "invalid argument",
        "cuFuncSetAttribute failed: invalid argument", "no error", "fine",
    ]  # fmt: skip


def test_invalid_values() -> None:
    """Copies beyond an allocation, allocations of no bytes or too many, destroyed handles, and unknown devices give
    CUDA's status codes."""
    ran = script(
        """
x = cuda.mem_alloc(100)
host = np.zeros(200, np.uint8)
print(said(cuda.memcpy_dtoh, host, x))
print(said(cuda.memcpy_dtoh, host[:50], int(x) + 60))
print(said(cuda.memset_d8, int(x), 0, 101))
print(said(cuda.mem_alloc, 0))
print(said(cuda.mem_alloc, 1 << 62))
print(said(cuda.mem_alloc, (1 << 20) - 99))
y = cuda.mem_alloc((1 << 20) - 100)
assert cuda.mem_get_info() == (0, 1 << 20)
y.free()
assert cuda.mem_get_info()[0] == (1 << 20) - 100
print(said(cuda.Device, 1))
print(said(cuda.module_from_buffer, b"no module at all"))
print(library.cuStreamSynchronize(ctypes.c_void_p(4711)), library.cuMemFree_v2(ctypes.c_uint64(int(x) + 8)))
stream = ctypes.c_void_p()
assert library.cuStreamCreate(ctypes.byref(stream), 0) == 0
print(library.cuStreamDestroy_v2(stream), library.cuStreamDestroy_v2(stream))
""",
        CUDABENCH_DRIVER_MEMORY=str(1 << 20),
    )
    assert ran.stdout.splitlines() == [
        *["cuMemcpyDtoH failed: invalid argument"] * 2, "cuMemsetD8 failed: invalid argument",
        "cuMemAlloc failed: invalid argument", *["cuMemAlloc failed: out of memory"] * 2,
        "cuDeviceGet failed: invalid device ordinal", "cuModuleLoadDataEx failed: device kernel image is invalid",
        "400 1", "0 400",
    ], ran.stderr  # fmt: skip


def test_calls_that_are_not_there() -> None:
    """A function that the driver lacks (sharing memory between processes, managed memory) is not supported, and the
    message names it."""
    ran = script("""
x = cuda.mem_alloc(4)
print(said(cuda.mem_get_ipc_handle, x))
print(said(cuda.managed_empty, 4, np.int32, mem_flags=cuda.mem_attach_flags.GLOBAL))
""")
    assert ran.stdout.splitlines() == [
        "cuIpcGetMemHandle failed: operation not supported", "cuMemAllocManaged failed: operation not supported",
    ]  # fmt: skip
    assert ran.stderr.splitlines() == [
        "the simulated driver has no cuIpcGetMemHandle", "the simulated driver has no cuMemAllocManaged",
    ]  # fmt: skip


def test_two_devices() -> None:
    """Each device has a separate name, memory and contexts: a kernel of one context cannot access memory of another,
    and a handle of one is invalid in another."""
    out = passes(
        """
first, second = cuda.Device(0), cuda.Device(1)
print(cuda.Device.count(), first.name(), "|", second.name())
a = first.make_context()
cubin = compile('extern "C" __global__ void one(int *x) { x[0] = 1; }', no_extern_c=True, arch="sm_87")
x, stream = cuda.mem_alloc(4), cuda.Stream()
one = cuda.module_from_buffer(cubin).get_function("one").prepare("P")
one.prepared_async_call((1, 1), (1, 1, 1), stream, x)
b = second.make_context()
assert cuda.mem_get_info() == (1 << 20, 1 << 20)
print(said(one.prepared_call, (1, 1), (1, 1, 1), x))
other = cuda.module_from_buffer(cubin).get_function("one").prepare("P")
print(said(other.prepared_async_call, (1, 1), (1, 1, 1), stream, x))
stream.synchronize()  # of the first device, while the second is current
out = np.zeros(1, np.int32)
cuda.memcpy_dtoh(out, x)
assert out[0] == 1
other.prepared_call((1, 1), (1, 1, 1), x)
print(said(b.synchronize))
b.pop()
assert cuda.mem_get_info() == ((1 << 20) - 4, 1 << 20)
cuda.memcpy_dtoh(out, x)
a.pop()
print(said(cuda.mem_alloc, 4), flush=True)
import os; os._exit(0)
""",
        START,
        CUDABENCH_DRIVER_CARDS="orin h100",
        CUDABENCH_DRIVER_MEMORY=str(1 << 20),
    )
    handle = "cuLaunchKernel failed: invalid resource handle"
    assert out.splitlines() == [
        "2 simulated Orin | simulated NVIDIA H100 80GB HBM3", handle, handle,
        "cuCtxSynchronize failed: an illegal memory access was encountered",
        "cuMemAlloc failed: invalid device context",
    ]  # fmt: skip


def test_a_context_that_ends() -> None:
    """The end of a context runs its queued work and frees its memory."""
    out = passes("""
module = SourceModule('''
#include <stdio.h>
__global__ void say() { printf("said\\\\n"); }
''')
before = cuda.mem_get_info()[0]
other = cuda.Device(0).make_context()
x = cuda.mem_alloc(1000)
SourceModule('''
#include <stdio.h>
__global__ void say() { printf("said\\\\n"); }
''').get_function("say")(grid=(1, 1), block=(1, 1, 1))
other.pop()
assert cuda.mem_get_info()[0] == before - 1000
other.detach()
assert cuda.mem_get_info()[0] == before
""")
    assert out == "said\n"


def test_addresses_are_given_again() -> None:
    """The driver reuses an address only after thousands of allocations, and never that of a live allocation or module
    variable; a kernel that uses freed memory faults."""
    passes("""
module = SourceModule("__device__ int mine = 7; __global__ void get(int *x) { x[0] = mine; }")
get = module.get_function("get").prepare("P")
kept = [cuda.mem_alloc(16) for _ in range(10)]
seen = {int(one) for one in kept}
for number in range(5000):
    once = cuda.mem_alloc(16)
    assert int(once) not in seen
    once.free()
again = cuda.mem_alloc(16)
assert int(again) < 4096 << 40
assert int(again) != module.get_global("mine")[0]
out = np.zeros(1, np.int32)
for place in (again, kept[0]):
    get.prepared_call((1, 1), (1, 1, 1), place)
    cuda.memcpy_dtoh(out, place)
    assert out[0] == 7
place = int(again)
again.free()
get.prepared_call((1, 1), (1, 1, 1), place)
assert "illegal memory access" in said(context.synchronize)
import os; os._exit(0)
""")


def test_threads_and_garbage() -> None:
    """Threads with separate contexts may call the driver at the same time; memory that is freed while a kernel runs (by
    the garbage collector) stays until the kernel ends."""
    passes("""
module = SourceModule('''
__global__ void sum(const int *x, int *y) { for (int i = 0; i < 300; i++) y[threadIdx.x] += x[i]; }
''')
total = module.get_function("sum").prepare("PP")
gc.set_threshold(20, 2, 2)  # often, so that it runs within the simulator

class Cycle:
    def __init__(self):
        self.me, self.memory = self, cuda.mem_alloc(1 << 20)
        cuda.memset_d32(self.memory, 1, 1 << 18)

y, out = cuda.mem_alloc(128), np.zeros(32, np.int32)
def run():
    gc.disable()
    cycle = Cycle()
    cuda.memset_d32(y, 0, 32)
    total.prepared_call((1, 1), (32, 1, 1), cycle.memory, y)
    del cycle
    gc.enable()
    cuda.memcpy_dtoh(out, y)
    assert (out == 300).all()

done = []
def work():
    own = cuda.Device(0).make_context()
    memory = cuda.mem_alloc(400)
    for value in range(20):
        cuda.memset_d32(memory, value, 100)
        got = np.zeros(100, np.int32)
        cuda.memcpy_dtoh(got, memory)
        assert (got == value).all()
    memory.free()
    own.pop()
    own.detach()
    done.append(1)

for _ in range(5):
    run()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(3):
    run()
for thread in threads:
    thread.join()
assert len(done) == 4
""")


def test_ctrl_c_while_a_kernel_runs() -> None:
    """Ctrl-C ends a kernel that never ends, and the program gets Python's KeyboardInterrupt."""
    text = """
module = SourceModule("__global__ void hang(volatile int *x) { while (!x[0]) ; x[1] = 1; }")
x = cuda.mem_alloc(8)
cuda.memset_d32(x, 0, 2)
module.get_function("hang")(x, grid=(1, 1), block=(1, 1, 1))
print("queued", flush=True)
try:
    context.synchronize()
    print("done")
except KeyboardInterrupt:
    print("interrupted", flush=True)
import os; os._exit(3)
"""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores SIGINT
    with subprocess.Popen(
        [sys.executable, "-c", IN_CONTEXT + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYCUDA_DEFAULT_NVCC_FLAGS": "-lineinfo"},
    ) as process:  # fmt: skip
        signal.signal(signal.SIGINT, before)
        assert process.stdout
        assert process.stdout.readline() == "queued\n"
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "interrupted\n"), err
