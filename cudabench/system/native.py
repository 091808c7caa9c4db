"""Stub."""
import ctypes, os
def library():
    path = os.environ.get("CUDABENCH_NATIVE_LIBRARY", "/tmp/native_test.so")
    return ctypes.CDLL(path)
def reason():
    return "none"
def engine():
    return os.environ.get("CUDABENCH_ENGINE", "")
