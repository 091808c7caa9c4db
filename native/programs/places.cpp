// Reads the program's call stack (return addresses and their files), and reports host code that accesses device memory.
#include "wire.hpp"

#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <link.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

namespace programs {

std::map<int, Place> freed;

struct Walk {
    Place place{};
    size_t count = 0;
};

static const link_map *map_of(const void *code) {
    Dl_info info;
    link_map *map = nullptr;
    return dladdr1(code, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : nullptr;
}

static const void *own_code() { return (const void *)&own_code; }

static _Unwind_Reason_Code note_frame(_Unwind_Context *frame, void *to) {
    static const link_map *own = map_of(own_code());
    Walk &walk = *(Walk *)to;
    int before = 0;
    auto code = (char *)_Unwind_GetIPInfo(frame, &before);
    if (!code)
        return _URC_END_OF_STACK;
    static auto &known = *new std::map<const void *, const link_map *>;
    auto [entry, fresh] = known.insert({code -= !before, nullptr});
    if (fresh)
        entry->second = map_of(code);
    if (entry->second && entry->second != own)
        walk.place.frames[walk.count++] = code;
    return walk.count < std::size(walk.place.frames) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

Place here() {
    Walk walk;
    _Unwind_Backtrace(note_frame, &walk);
    return walk.place;
}

std::string text_of(const Place &place) {
    static auto &known = *new std::map<const void *, std::string>;
    std::string texts;
    for (const void *code : place.frames) {
        if (!code)
            break;
        std::string &text = known[code];
        const link_map *map = text.empty() ? map_of(code) : nullptr;
        if (map) {
            char path[4096] = "";
            if (!map->l_name[0] && readlink("/proc/self/exe", path, sizeof path - 1) < 0)
                continue;
            char offset[32];
            snprintf(offset, sizeof offset, "+0x%zx", size_t(code) - size_t(map->l_addr));
            text = (map->l_name[0] ? map->l_name : path) + std::string(offset);
        }
        texts += (texts.empty() ? "" : " ") + text;
    }
    return texts;
}

// Return the device address that caused a fault, or 0. For an address that is not canonical, the system does not report
// the address, so the processor's registers are searched for a device address.
static Address device_address(const siginfo_t *about, void *at) {
    auto known = [](Address address) {
        return memory_at(address) || freed.count(int(address >> SLOT_BITS)) ? address : 0;
    };
    if (about->si_code != SI_KERNEL)
        return known(Address(about->si_addr));
#ifdef __x86_64__
    for (int number = 0; number < REG_RIP; number++) {
        auto address = Address(((ucontext_t *)at)->uc_mcontext.gregs[number]);
        if (address >> SLOT_BITS >= 128 && address >> SLOT_BITS < 1 << 20 && known(address))
            return address;
    }
#else
    (void)at;
#endif
    return 0;
}

static struct sigaction before[2];

// Report the error that caused a fault. Return whether the program can continue.
static bool name_fault(const siginfo_t *about, void *at) {
    CoreLock guard;
    if (is_early(Address(about->si_addr)))
        return true;
    if (Address address = device_address(about, at)) {
        const Memory *memory = memory_at(address);
        finding(memory ? "host-touches-device" : "use-after-free",
                memory ? "Host code touches memory of the device." : "Host code touches memory that was freed.", here(),
                memory ? memory->place : freed[int(address >> SLOT_BITS)]);
    }
    return false;
}

static void on_fault(int signal, siginfo_t *about, void *at) {
    struct sigaction &chained = before[signal == SIGBUS];
    if (name_fault(about, at))
        return;
    if (chained.sa_flags & SA_SIGINFO && chained.sa_sigaction)
        return chained.sa_sigaction(signal, about, at);
    if (chained.sa_handler != SIG_DFL && chained.sa_handler != SIG_IGN)
        return chained.sa_handler(signal);
    ::signal(signal, SIG_DFL); // the instruction runs again, and now ends the program as it would without this handler
}

void catch_faults() {
    struct sigaction ours{};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &ours, &before[0]);
    sigaction(SIGBUS, &ours, &before[1]);
}

} // namespace programs
