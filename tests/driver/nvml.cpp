// NVIDIA's management library for the simulated driver: cards that idle at fixed clocks. Status 3 is "not supported".

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Process { unsigned pid; unsigned long long memory; unsigned instance, compute_instance; };

extern "C" {
int nvmlInitWithFlags(unsigned) { return 0; }
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char *nvmlErrorString(int) { return "not supported by the simulated driver"; }
// A card's UUID repeats its number from 1 on: the handle is that number.
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = (void *)strtoul(uuid + 4 + 6, nullptr, 16);
    *handle = (void *)((size_t)*handle & 0xFF);
    return *handle ? 0 : 2;
}
int nvmlDeviceGetClockInfo(void *, int kind, unsigned *mhz) { *mhz = kind == 2 ? 2600 : 1500; return 0; }
int nvmlDeviceGetMaxClockInfo(void *, int kind, unsigned *mhz) { *mhz = kind == 2 ? 2600 : 1900; return 0; }
int nvmlDeviceGetPowerUsage(void *, unsigned *milliwatts) { *milliwatts = 100000; return 0; }
int nvmlDeviceGetTemperature(void *, int, unsigned *celsius) { *celsius = 40; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *, unsigned long long *reasons) { *reasons = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *count, Process *found) {
    const char *others = getenv("CUDABENCH_DRIVER_OTHERS");  // process numbers that compute too
    unsigned room = *count, there = 0;
    if (room) found[there] = Process{(unsigned)getpid(), 0, 0, 0};
    there++;
    for (const char *at = others; at && *at; there++) {
        char *end;
        unsigned long pid = strtoul(at, &end, 10);
        if (there < room) found[there] = Process{(unsigned)pid, 0, 0, 0};
        at = *end ? end + 1 : end;
    }
    *count = there;
    return there > room ? 7 : 0;  // 7: more room is needed
}
}
