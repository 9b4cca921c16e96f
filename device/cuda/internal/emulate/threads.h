// How the emulated driver and the compiled kernels speak with each other.
#ifndef EMULATE_THREADS_H
#define EMULATE_THREADS_H

struct emulate_index {
    unsigned x, y, z;
};

// What kernels see of the running thread.
struct emulate_state {
    emulate_index thread, block, block_size, grid;
    char *shared; // dynamic shared memory
    // barrier waits for all threads of the block (warp < 0) or of a warp.
    void (*barrier)(int warp);
    // slots are what the threads of the block exchange: 8 bytes each.
    unsigned long long *slots;
};

// A kernel called with its packed parameters.
typedef void (*emulate_kernel)(const char *parameters);
// Every kernel library exports emulate_attach, which takes the state.
typedef void (*emulate_attach_function)(emulate_state *);

#endif
