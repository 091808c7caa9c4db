// Counts of memory requests: sectors, wavefronts, and what the lanes of some warps do.
#pragma once

#include "engine.hpp"

namespace engine {

class Counters {
  public:
    explicit Counters(const Launch &launch);
    void start(const Block &block);
    // Count a request of lanes that are in bounds and aligned.
    void count(const Block &block, const Request &request);
    std::vector<Counts> rows; // by number and place

  private:
    const Launch &launch;
};

// Sectors of 32 bytes that a request touches, and of as many distinct bytes packed.
void sectors(const Request &request, i64 size, i64 &pieces, i64 &ideal);

} // namespace engine
