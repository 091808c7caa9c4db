// The connection to `cudabench exec`: messages over a socket, and the file in memory that both processes map.
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
bool start();    // say HELLO once; false where nobody answers
Status absent(); // what calls return then
Reply ask(Ask kind, const Message &message);
void tell_changes(); // of memory since the last launch

// Say what the program does wrong: what of, and where, in words and in the program's code.
void finding(const char *kind, const std::string &message, const Place &place, const Place &other = {});
extern bool told_finding; // by the call
void note_exit();         // have the exit code known at the end
std::string text_of(const Place &place);

// Memory of the host that was page-locked later: a range of the file stands for it while a kernel runs.
bool add_registered(int slot, char *host, size_t bytes, const Place &place);

extern std::map<int, Place> freed; // by slot
bool is_early(Address address);    // a fault of the host in memory that a copy is still to write
void catch_faults();               // have SIGSEGV name memory of the device that the host touches

} // namespace programs
