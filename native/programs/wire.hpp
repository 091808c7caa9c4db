// The connection to `cudabench exec`: messages over a socket, and a file in memory that both processes map.
#pragma once

#include "core.hpp"

#include <cstring>

namespace programs {

enum class Ask : unsigned { HELLO = 1, LOAD, UNLOAD, FIND, LAUNCH, MEMORY, TEXTURE, TENSOR_MAP, FINDING, END };

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
            status = UNKNOWN, count = bytes.size() - at; // a broken answer
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
bool start();    // say HELLO once; false: no answer
Status absent(); // the status of calls in this case
Reply ask(Ask kind, const Message &message);
void tell_changes(); // of memory since the last launch

// Report an error of the program: its kind, a message, and its places in the program's code.
void finding(const char *kind, const std::string &message, const Place &place, const Place &other = {});
extern bool told_finding; // whether the call reported one
void note_exit();         // record the exit code for the end
std::string text_of(const Place &place);

// Memory of the host that was page-locked later: a range of the file holds its copy while a kernel runs.
bool add_registered(int slot, char *host, size_t bytes, const Place &place);

extern std::map<int, Place> freed; // by slot
bool is_early(Address address);    // a fault of the host in memory with a pending copy
void catch_faults();               // report memory of the device that the host touches, at SIGSEGV

} // namespace programs
