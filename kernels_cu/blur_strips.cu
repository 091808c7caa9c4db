// Box blur by strips: a warp owns a strip of the picture, a lane the same BYTES bytes of each row. The warp slides
// down:
//
//     row y - 1   | lane 0 | lane 1 | lane 2 | ... | lane 31 |     a lane has SPAN columns: 4 floats or 16 bytes
//     row y       | lane 0 | lane 1 | lane 2 | ... | lane 31 |     it adds the neighbours of each column along the row,
//     row y + 1   | lane 0 | lane 1 | lane 2 | ... | lane 31 |     and gets those of other lanes by shuffles: the first
//                   lends    writes   writes         lends         and last SIDE lanes only lend

// The sums of the last K rows stay in a ring of registers, as in slide. For bytes the ring holds running totals, whose
// difference is the sum: 5, 5 + 7, 5 + 7 + 2, ... For float and a radius of 1, 30 lanes of 4 columns write, and the
// ring of 3 rows turns 3 times: strips of 120 columns by 7 rows. If rows are not a multiple of BYTES long, they start
// anywhere. A lane then reads the aligned BYTES bytes around its own, the warp shifts them into place (`shifted`), and
// shifts the results back, so that it writes aligned bytes. At the edge of the picture neighbours are missing. Its own
// blocks do the edge, so that strips only test where they may write. These blocks are the first ones, because they wait
// for each of their loads.

#include "pairs.cuh"

#if RADIUS <= MAX_STRIP

// Gives each warp a strip; its lanes read a row once, BYTES each, and get their neighbours' columns by shuffles.
// Shuffles also move ragged rows into place between aligned reads and writes, one instruction adds four bytes, and the
// next rows are under way meanwhile. What remains: neighbouring warps drift apart, so that the memory serves many rows
// at once. The longer the strips, the more rows these are: long strips gain nothing.
extern "C" __global__ void blur_strip(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    blur_by_strips(in, out, width, height);
}

// The next rung is for bytes only. It adds down the columns first, so that a register holds the sums of two columns.
// With b0 to b3 the bytes of a word, each summed over K rows:
//
//     odd     b1 | b3 << 16                                   the words' odd bytes, with 16 bits each
//     whole   b0 + (b1 << 8) + (b2 << 16) + (b3 << 24)        the words as they are: a byte's sum overflows to the next
//     even    b0 | b2 << 16  =  whole - (odd << 8)            without the overflow
//
// Each new row is added, and the oldest is subtracted, which is exact in whole numbers. Then neighbours along the row
// are added, from other lanes by shuffles, and only for rows that are written: the rows above and below a strip cost
// little more than their loads.

// Keeps the sums of two columns in a register.
// It takes two thirds of strip's registers, so 1.5 times as many warps run, and strips can be shorter for as many
// instructions. It pays for a radius of 1; for 3, strip is as fast. What remains: a warp reads its rows one after the
// other, the edge delays the strips, and while the last strips run alone, the memory idles. Still shorter strips would
// end sooner, but read too many rows twice.
extern "C" __global__ void blur_pairs(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    blur_by_pairs(in, out, width, height);
}

#endif
