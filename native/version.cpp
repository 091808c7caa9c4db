// Returns the name of the compiler that built this library, for `cudabench info`.

#ifdef __clang__
#define COMPILER "clang++ " __clang_version__
#else
#define COMPILER "g++ " __VERSION__
#endif

extern "C" __attribute__((visibility("default"))) const char *cudabench_native_version() { return COMPILER; }
