#include "launch.hpp"

namespace engine {

const std::vector<Operation> &warp_operations() {
    static const std::vector<Operation> all;
    return all;
}

} // namespace engine
