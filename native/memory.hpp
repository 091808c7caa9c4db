// Memory of all spaces: bounds, alignment, loads and stores; what was written can be undone.
#pragma once

#include "engine.hpp"

#include <memory>

namespace engine {

// The pages of the arrays as they were before the launch first wrote to them.
class Undo {
  public:
    void start(const Launch &launch);
    // Keep the pages of a region from one byte to another, counted from its start; several workers may.
    void keep(const Launch &launch, i32 region, i64 low, i64 high);
    void restore(const Launch &launch);

  private:
    static constexpr i64 PAGE = 4096;
    struct Pages {
        std::unique_ptr<std::atomic<u8>[]> states; // 0 untouched, 1 being copied, 2 kept
        std::vector<std::unique_ptr<u8[]>> copies;
        i64 count = 0;
    };
    std::vector<Pages> regions;
};

} // namespace engine
