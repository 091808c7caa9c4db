// The connection to `cudabench exec`: messages over a socket, and a file in memory that both processes map.
#pragma once

#include "core.hpp"

#include <cstring>

namespace programs {

// clang-format off
enum class RequestKind : unsigned {
    HELLO = 1, LOAD, UNLOAD, FIND, LAUNCH, MEMORY, TEXTURE, TENSOR_MAP, FINDING, END, FINISH
};
// clang-format on

struct Message {
    std::string bytes;
    template <class T> Message &put(const T &value) { return raw(&value, sizeof value); }
    Message &raw(const void *from, size_t count) {
        if (count)
            bytes.append((const char *)from, count);
        return *this;
    }
    Message &text(const std::string &words) { return put(unsigned(words.size())).raw(words.data(), words.size()); }
};

struct Reply {
    Status status;
    std::string bytes;
    size_t at = 0;
    void raw(void *to, size_t count) {
        if (count > bytes.size() - at)
            status = UNKNOWN, count = bytes.size() - at; // the answer is shorter than expected
        memcpy(to, bytes.data() + at, count), at += count;
    }
    template <class T> T take() {
        T value{};
        raw(&value, sizeof value);
        return value;
    }
    std::string text() {
        std::string words(std::min<size_t>(take<unsigned>(), bytes.size() - at), 0);
        raw(&words[0], words.size());
        return words;
    }
};

bool connected();
bool start();    // send HELLO, only at the first call; returns false if there is no answer
Status absent(); // the status of all calls if there is no connection
Reply send_request(RequestKind kind, const Message &message);
void send_changes(); // tell Python which memory changed since the last launch

// Report an error of the program: its kind, a message, and the places in the program's code that it concerns.
void finding(const char *kind, const std::string &message, const CallStack &place, const CallStack &other = {});
extern bool finding_reported; // whether the current call has reported an error by `finding`
void note_exit();             // make the program's exit code known to the report at its end
std::string text_of(const CallStack &place);

// Page-lock ordinary host memory. While a kernel runs, a range of the file holds a copy of this memory.
bool add_registered(int slot, char *host, size_t bytes, const CallStack &place);

extern std::map<int, CallStack> freed; // for each freed slot, where the program freed it
bool is_early(Address address);        // whether the host accessed memory before a queued copy into it has ended
void catch_faults();                   // report, at SIGSEGV or SIGBUS, that the host accessed device memory

} // namespace programs
