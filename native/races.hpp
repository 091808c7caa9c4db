// Whether a launch may have races or reads shared memory that nobody has written: more than the NumPy engine names may
// look like it, never less.
#pragma once

#include "engine.hpp"

namespace engine {

// What all workers share: who touched each granule of the watched arrays last.
class Shadows {
  public:
    void start(const Launch &launch);
};

class Races {
  public:
    Races(const Launch &launch, int worker);
    void start(const Block &block);
    // All threads of the block have met.
    void barrier(const Block &block);
    // Lanes of a warp have met those that they name.
    void meet(const Block &block, int warp, u32 lanes);
    // Note a request of lanes in bounds; before: it has not been done yet. data: of a store, what lanes write, by lane,
    // `access.size` bytes each, or nullptr.
    void note(const Block &block, const Op &op, const Request &request, const u8 *data);
};

} // namespace engine
