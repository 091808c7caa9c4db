#include "launch.hpp"

namespace engine {

void Shadows::start(const Launch &) {}
Races::Races(const Launch &, int) {}
void Races::start(const Block &) {}
void Races::barrier(const Block &) {}
void Races::meet(const Block &, int, u32) {}
void Races::note(const Block &, const Op &, const Request &, const u8 *) {}

} // namespace engine
