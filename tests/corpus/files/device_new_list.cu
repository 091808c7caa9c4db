// A linked list on the device's heap.
// run: -g 1 -b 32 --arg 'out=int32[32]:empty' --arg n=5 --expect 'out=np.arange(32)*10'
// expect: ok
struct Cell {
    int key;
    Cell *next;
};
__global__ void sum_of_list(int *out, int n) {
    Cell *head = nullptr;
    for (int i = 0; i < n; ++i) head = new Cell{i * (int)threadIdx.x, head};
    int sum = 0;
    while (head) {
        Cell *old = head;
        sum += old->key;
        head = head->next;
        delete old;
    }
    out[threadIdx.x] = sum;
}
