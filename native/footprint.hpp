// Which memory a launch touches; see cudabench/simulator/count/footprint.py, whose numbers these are.
#pragma once

#include "engine.hpp"

namespace engine {

class Marks {
  public:
    void start(const Launch &launch);
};

class Footprints {
  public:
    explicit Footprints(const Launch &launch);
    void start(const Block &block);
    // Note a request to global or constant memory; size: bytes of a lane as they are counted.
    void note(const Block &block, const Request &request, i64 size);
};

} // namespace engine
