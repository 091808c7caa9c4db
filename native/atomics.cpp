#include "launch.hpp"

namespace engine {

const std::vector<Operation> &atomic_operations() {
    static const std::vector<Operation> all;
    return all;
}

} // namespace engine
