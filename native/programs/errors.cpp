// CUDA's errors: the number, the name in the runtime and in the driver, and the text.
#include "core.hpp"

namespace programs {

static const Error ERRORS[] = {
#include "errors.inc"
};

const Error *error_of(int number) {
    for (const Error &error : ERRORS)
        if (error.number == number)
            return &error;
    return nullptr;
}

} // namespace programs
