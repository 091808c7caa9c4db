// Kommentar in Latin-1: Größe der Blöcke, père, año.
// run: -g 1 -b 32 --arg 'x=int32[32]:arange' --expect 'x=x0+7'
// expect: ok
__global__ void addiere(int *x) {
    x[threadIdx.x] += 7; // für jeden Faden
}
