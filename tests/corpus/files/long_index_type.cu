// Indices in a type of a header that is not there: the line has gaps for what only the user knows.
// run: -k gather_map
// expect: refused: with your own value for each \.\.\.: .*--arg map=\.\.\. --arg rows=\.\.\. --arg psi=\.\.\. --arg nsrow=\.\.\.
// then: -k gather_map -D Index_long=long -g 2 -b 32 --arg 'map=int64[64]:zeros' --arg 'rows=int64[64]:permutation'
//       --arg psi=0 --arg nsrow=64 --expect 'map=np.argsort(rows)'
#include "absent_config.h"

__global__ void gather_map(Index_long *map, const Index_long *rows, Index_long psi, Index_long nsrow)
{
    Index_long at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < nsrow) map[rows[psi + at]] = at;
}
