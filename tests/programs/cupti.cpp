// A CUPTI that reports launches which did not happen, to test the recorder of launches without a GPU.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct __attribute__((packed)) Kernel {
    uint32_t kind = 10;
    uint8_t cache[2] = {};
    uint16_t registers;
    uint32_t partitioned[2] = {};
    uint64_t start, end, completed = 0;
    uint32_t device, context = 1, stream = 7;
    int32_t grid[3], block[3], shared[2];
    uint32_t local[2] = {16, 0}, correlation = 1;
    int64_t number = 0;
    const char *name;
    char more[64] = {}; // newer records are longer
};

static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static bool enabled;

extern "C" {
int cuptiActivityRegisterCallbacks(decltype(request) first, decltype(complete) second) {
    request = first, complete = second;
    return 0;
}
int cuptiActivityEnable(int kind) {
    enabled = kind == 10;
    return std::getenv("REFUSED") ? 15 : 0;
}
int cuptiGetResultString(int, const char **text) {
    *text = "CUPTI_ERROR_NOT_INITIALIZED";
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record) {
    uint8_t *next = *record ? static_cast<uint8_t *>(*record) + sizeof(Kernel) : buffer;
    if (next + sizeof(Kernel) > buffer + valid)
        return 2;
    *record = next;
    return 0;
}
int cuptiActivityFlushAll(uint32_t) {
    static std::vector<Kernel> rows = [] {
        std::vector<Kernel> made;
        for (uint64_t launch = 0; launch < 5; launch++) {
            Kernel row{};
            row.kind = 10, row.registers = 32, row.start = 1000 + 10000 * launch,
            row.end = row.start + 1000 * (launch + 1);
            row.device = 0, row.name = "_Z5scaleIfLi4EEvPT_i";
            const int grid = launch == 4 ? 8 : 2;
            const int sizes[] = {grid, 1, 1, 64, 2, 1, 256, 1024};
            std::memcpy(row.grid, sizes, sizeof sizes);
            made.push_back(row);
        }
        made.push_back(made.back());
        made.back().name = "plain", made.back().end = 0; // has not ended
        made.push_back(made.front());
        made.back().kind = 1; // not a kernel
        return made;
    }();
    if (!enabled || rows.empty())
        return 0;
    uint8_t *buffer = nullptr;
    size_t bytes = 0, most = 0;
    request(&buffer, &bytes, &most);
    std::memcpy(buffer, rows.data(), rows.size() * sizeof(Kernel));
    complete(nullptr, 0, buffer, bytes, rows.size() * sizeof(Kernel));
    rows.clear();
    return 0;
}
}
