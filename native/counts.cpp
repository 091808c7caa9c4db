#include "launch.hpp"

#include <algorithm>

namespace engine {

Counters::Counters(const Launch &of) : rows(size_t(of.about.numbers_count * of.places), Counts{}), launch(of) {}

void Counters::start(const Block &) {}

void sectors(const Request &request, i64 size, i64 &pieces, i64 &ideal) {
    i64 places[LANES];
    int count = 0;
    for (u32 rest = request.mask; rest; rest &= rest - 1)
        places[count++] = request.addresses[first_lane(rest)];
    std::sort(places, places + count);
    i64 distinct = std::unique(places, places + count) - places;
    ideal = (distinct * size + 31) / 32;
    pieces = 0;
    if (size >= 32) {
        pieces = distinct * (size / 32);
        return;
    }
    for (i64 place = 0; place < distinct; place++)
        pieces += !place || places[place] >> 5 != places[place - 1] >> 5;
}

void Counters::count(const Block &, const Request &request) {
    i64 pieces = 0, ideal = 0;
    sectors(request, request.access.size, pieces, ideal);
    Counts &row = rows[size_t(request.access.number[request.space] * launch.places + request.region)];
    row.requests++;
    row.pieces += pieces;
    row.ideal += ideal;
}

} // namespace engine
