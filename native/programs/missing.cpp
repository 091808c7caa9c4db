// Defines the calls of the runtime that no other file defines. Such a call reports its name and that it is not
// supported.
#include "runtime.hpp"

namespace programs {

#define NAME(name)                                                                                                     \
    API Status name() { return missing(#name); }
#define PTSZ(name) NAME(name) NAME(name##_ptsz)
#define PTDS(name) NAME(name) NAME(name##_ptds)
#include "missing_calls.inc"

} // namespace programs
