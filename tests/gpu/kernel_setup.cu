#include "kernel_setup.h"

#include <cstring>
#include <vector>

void kernel_options_read(kernel_options *options, const char *program, int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && strcmp(argv[i], "--kernel") == 0)
            options->name = value;
        else if (value && strcmp(argv[i], "--seeds") == 0)
            options->seeds = (unsigned)atoi(value);
        else if (value && strcmp(argv[i], "--seed") == 0)
            options->first = (unsigned)atoi(value);
        else if (value && strcmp(argv[i], "--repeats") == 0)
            options->repeats = atoi(value);
        else if (value && strcmp(argv[i], "--listed") == 0)
            options->listed = atoi(value);
        else if (value && strcmp(argv[i], "--check") == 0)
            options->check = value;
        else {
            fprintf(stderr,
                    "usage: %s [--kernel NAME] [--seeds N] [--seed FIRST] [--repeats N] [--listed 0|1] "
                    "[--check NAME]\n",
                    program);
            exit(2);
        }
    }
}

const ra_kernel *kernel;

/* The last, and so best, that can run and has that name; NULL: any. */
static const ra_kernel *find_kernel(const char *name) {
    const ra_kernel *found = NULL;
    for (int i = 0; ra_cuda_kernel_at(i); i++)
        if (ra_cuda_kernel_at(i)->usable() && (!name || strcmp(name, ra_cuda_kernel_at(i)->name) == 0))
            found = ra_cuda_kernel_at(i);
    return found;
}

int kernel_choose(const char *name) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU, skipped\n");
        return 0;
    }
    kernel = find_kernel(name);
    if (!kernel) {
        printf("%s cannot run on this GPU, skipped\n", name ? name : "the CUDA kernels");
        return 0;
    }
    printf("%s\n", kernel->name);
    return 1;
}

int kernel_takes(ra_dtype dtype) {
    return strcmp(kernel->name, "cuda_sm75") != 0 || dtype == RA_F16 || dtype == RA_F32;
}

static std::vector<void *> taken;

/* In memory of its own, to the byte, so that memcheck sees who reads beyond its lists or writes beyond its counters. */
static void place(ra_prepared *prepared) {
    ra_list_size size = kernel->list_size(prepared);
    std::vector<unsigned char> lists(size.lists + 1);
    void *memory = take(size.lists), *counters = take(size.counters);
    kernel->place(prepared, memory, counters, lists.data());
    CHECK(cudaMemcpy(memory, lists.data(), size.lists, cudaMemcpyHostToDevice));
}

ra_prepared *prepared_of(const ra_shape &shape, const ra_tile_list &list, const ra_kv_rows *parts, int64_t count,
                         ra_pass pass) {
    ra_prepared *prepared = NULL;
    if (kernel->prepare(&shape, &list, parts, count, pass, &prepared) != RA_OK) {
        fprintf(stderr, "prepare: %s\n", ra_last_error());
        exit(1);
    }
    place(prepared);
    return prepared;
}

void *take(size_t bytes) {
    void *memory;
    CHECK(cudaMalloc(&memory, bytes ? bytes : 1)); /* and no more: memcheck sees who reads beyond */
    CHECK(cudaMemset(memory, 0xff, bytes));
    taken.push_back(memory);
    return memory;
}

void *take_copy(const void *from, size_t bytes) {
    void *memory = take(bytes);
    CHECK(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    return memory;
}

void give_all_back(void) {
    for (void *memory : taken) CHECK(cudaFree(memory));
    taken.clear();
}
