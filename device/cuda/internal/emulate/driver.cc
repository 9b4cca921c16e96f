// The emulated driver: what package cuda calls of libcuda, on host memory.
#include "threads.h"

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <map>
#include <set>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

static const size_t total_memory = (size_t)4 << 30;
static size_t used_memory;
static std::map<CUdeviceptr, size_t> allocations;
static char context_object, stream_object;
static int contexts; // how often it is retained

// An event holds when it was recorded, in seconds: everything is done by then.
struct CUevent_st {
    bool timing, recorded;
    double time;
};
static std::set<CUevent> events;

static bool known(CUevent e) { return events.count(e) != 0; }

struct CUmod_st {
    void *library;
    std::map<std::string, CUfunc_st *> functions;
};
struct CUfunc_st {
    emulate_kernel call;
    int shared_limit = 48 << 10;
};

static emulate_state state;
static std::vector<unsigned long long> slots;

// A thread of a block.
struct coroutine {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
    int waiting; // -2 runs, -1 waits for the block, else for its warp
};

static std::vector<coroutine> threads;
static ucontext_t scheduler;
static unsigned current;
static emulate_kernel running;
static const char *parameters;

static void barrier(int warp) {
    threads[current].waiting = warp;
    swapcontext(&threads[current].context, &scheduler);
}

static void enter() {
    running(parameters);
    threads[current].done = true;
}

// A group may go on once all of its threads that are not done wait for it.
static bool release(unsigned first, unsigned last, int what) {
    bool any = false;
    for (unsigned i = first; i < last; i++) {
        if (threads[i].done) continue;
        if (threads[i].waiting != what) return false;
        any = true;
    }
    for (unsigned i = first; i < last; i++) threads[i].waiting = -2;
    return any;
}

static bool run_block(unsigned n, bool reverse) {
    for (unsigned i = 0; i < n; i++) {
        coroutine &t = threads[i];
        if (t.stack.empty()) t.stack.resize(256 << 10);
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = t.stack.data();
        t.context.uc_stack.ss_size = t.stack.size();
        t.context.uc_link = &scheduler;
        makecontext(&t.context, enter, 0);
        t.done = false;
        t.waiting = -2;
    }
    for (;;) {
        bool ran = false, left = false;
        for (unsigned k = 0; k < n; k++) {
            unsigned i = reverse ? n - 1 - k : k;
            coroutine &t = threads[i];
            if (t.done) continue;
            left = true;
            if (t.waiting != -2) continue;
            current = i;
            state.thread = {i, 0, 0};
            swapcontext(&scheduler, &t.context);
            ran = true;
        }
        if (!left) return true;
        bool freed = false;
        for (unsigned w = 0; w * 32 < n; w++) freed |= release(w * 32, w * 32 + 32 < n ? w * 32 + 32 : n, (int)w);
        freed |= release(0, n, -1);
        if (!ran && !freed) return false; // some wait for what others never reach
    }
}

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *v) {
    *v = 13000;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *n) {
    *n = 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *d, int i) {
    *d = i;
    return i == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char *name, int n, CUdevice) {
    snprintf(name, n, "Emulated card");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice) {
    *n = total_memory;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid *u, CUdevice) {
    memset(u, 0, sizeof *u);
    return CUDA_SUCCESS;
}
#ifndef cuDeviceGetUuid
CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { return cuDeviceGetUuid(u, d); }
#endif
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
    switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 1; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: {
        const char *e = getenv("EMULATE_SHARED");
        *v = e ? atoi(e) : 227 << 10;
        break;
    }
    default: *v = 0;
    }
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) {
    *c = (CUcontext)&context_object;
    contexts++;
    return CUDA_SUCCESS;
}
// Unlike the real driver, it refuses to end a context whose events were left.
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
    return --contexts == 0 && !events.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuGetErrorName(CUresult r, const char **s) {
    *s = r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **s) {
    *s = "error of the emulated driver";
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *s, unsigned) {
    *s = (CUstream)&stream_object;
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent *e, unsigned flags) {
    *e = new CUevent_st{!(flags & CU_EVENT_DISABLE_TIMING), false, 0};
    events.insert(*e);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent e) {
    if (!events.erase(e)) return CUDA_ERROR_INVALID_HANDLE;
    delete e;
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent e, CUstream) {
    if (!known(e)) return CUDA_ERROR_INVALID_HANDLE;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    e->recorded = true;
    e->time = now.tv_sec + 1e-9 * now.tv_nsec;
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent e) { return known(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
#undef cuEventElapsedTime // a macro for cuEventElapsedTime_v2 in CUDA 13's header
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    if (!known(start) || !known(end) || !start->timing || !end->timing || !start->recorded || !end->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = 1e3 * (end->time - start->time);
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *free_bytes = total_memory - used_memory;
    *total = total_memory;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    if (n > total_memory - used_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    void *m = nullptr;
    if (posix_memalign(&m, 512, n)) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(m, 0xff, n); // NaN in every format
    *p = (CUdeviceptr)m;
    allocations[*p] = n;
    used_memory += n;
    return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
    auto i = allocations.find(p);
    if (i == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    used_memory -= i->second;
    allocations.erase(i);
    free((void *)p);
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned) {
    *p = malloc(n);
    return *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *p) {
    free(p);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char x, size_t n, CUstream) {
    memset((void *)p, x, n);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream) {
    memmove((void *)to, (void *)from, n);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream) {
    memcpy((void *)to, from, n);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream) {
    memcpy(to, (void *)from, n);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
    *n = 2 << 20;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t, CUdeviceptr, unsigned long long) {
    void *m = mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *p = (CUdeviceptr)m;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t n) { return munmap((void *)p, n) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *, unsigned long long) {
    if (n > total_memory - used_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *h = n;
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
CUresult cuMemMap(CUdeviceptr p, size_t n, size_t, CUmemGenericAllocationHandle h, unsigned long long) {
    if (h != n || allocations.count(p)) return CUDA_ERROR_INVALID_VALUE;
    allocations[p] = n;
    used_memory += n;
    return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *, size_t) {
    if (mprotect((void *)p, n, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
    memset((void *)p, 0xff, n);
    return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
    // Whole mappings only, as the real driver demands.
    for (CUdeviceptr at = p; at < p + n;) {
        auto i = allocations.find(at);
        if (i == allocations.end() || at + i->second > p + n) return CUDA_ERROR_INVALID_VALUE;
        used_memory -= i->second;
        at += i->second;
        allocations.erase(i);
    }
    madvise((void *)p, n, MADV_DONTNEED);
    return mprotect((void *)p, n, PROT_NONE) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG)) return CUDA_ERROR_INVALID_IMAGE;
    size_t n = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize; // the headers come last
    const char *temporary = getenv("TMPDIR");
    std::string name = std::string(temporary && *temporary ? temporary : P_tmpdir) + "/emulate-kernel-XXXXXX";
    const char *path = name.c_str();
    int f = mkstemp(name.data());
    if (f < 0 || write(f, image, n) != (ssize_t)n) return CUDA_ERROR_INVALID_IMAGE;
    close(f);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    auto attach = (emulate_attach_function)dlsym(library, "emulate_attach");
    if (!attach) return CUDA_ERROR_INVALID_IMAGE;
    attach(&state);
    *module = new CUmod_st{library, {}};
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
    for (auto &f : module->functions) delete f.second;
    dlclose(module->library);
    delete module;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    auto call = (emulate_kernel)dlsym(module->library, (std::string("emulate_call_") + name).c_str());
    if (!call) return CUDA_ERROR_NOT_FOUND;
    CUfunc_st *&f = module->functions[name];
    if (!f) f = new CUfunc_st{call};
    *function = f;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) f->shared_limit = v;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream, void **params, void **extra) {
    if (params || by != 1 || bz != 1 || bx == 0 || bx > 1024 || gy > 65535 || gz > 65535 || (int)shared > f->shared_limit)
        return CUDA_ERROR_INVALID_VALUE;
    const char *bytes = nullptr;
    for (void **e = extra; *e != CU_LAUNCH_PARAM_END; e += 2)
        if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) bytes = (const char *)e[1];
    if (threads.size() < bx) threads.resize(bx);
    slots.assign(bx, 0);
    std::vector<char> memory(shared + 16);
    state.shared = memory.data() + (16 - (size_t)memory.data() % 16) % 16;
    state.block_size = {bx, 1, 1};
    state.grid = {gx, gy, gz};
    state.barrier = barrier;
    state.slots = slots.data();
    running = f->call;
    parameters = bytes;
    const char *order = getenv("EMULATE_ORDER");
    bool reverse = order && !strcmp(order, "reverse");
    for (unsigned z = 0; z < gz; z++)
        for (unsigned y = 0; y < gy; y++)
            for (unsigned x = 0; x < gx; x++) {
                state.block = {x, y, z};
                memset(state.shared, 0xff, shared);
                if (!run_block(bx, reverse)) {
                    fprintf(stderr, "emulated driver: a block's threads wait for each other forever\n");
                    return CUDA_ERROR_LAUNCH_FAILED;
                }
            }
    return CUDA_SUCCESS;
}
}
