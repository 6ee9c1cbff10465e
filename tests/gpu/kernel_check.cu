/* The CUDA kernels against the definition of a tile and against the ref kernel.
 *
 *   kernel_check [--kernel NAME] [--seeds N] [--seed FIRST] [--repeats N] [--check NAME]
 *
 * The kernel is the best one that this GPU can run, unless one is named. The checks, of which one can be done alone,
 * are listed below.
 *
 * Builds without the rest of the project, from its root:
 *
 *   mkdir -p build/kernel_check && cd build/kernel_check
 *   INC="-I../../include -I../../src -I../../tests"
 *   gcc -std=gnu11 -O2 $INC -c ../../src/base/{status,dtype}.c ../../src/core/{span,tile}.c \
 *       ../../src/kernel/{rows,row_io,parallel}.c ../../src/kernel/ref/{ref,ref_forward,ref_backward}.c \
 *       ../../tests/support/tiles/tile_case.c
 *   find ../../src/kernel/cuda/sm90 -name "*.cu" |
 *       xargs -P 2 -n 1 nvcc -O3 -std=c++17 $INC -gencode arch=compute_90a,code=sm_90a -c
 *   find ../../src/kernel/cuda ../../tests/gpu/{kernel_setup,kernel_check,check_*}.cu -name "*.cu" \
 *       -not -path "*sm[79][05]*" | xargs -P 2 -n 1 nvcc -O3 -std=c++17 $INC -DRA_HAVE_SM90=1 \
 *       -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
 *       -gencode arch=compute_90,code=compute_90 -c
 *   nvcc *.o -o kernel_check -lpthread -lm
 */
#include "check_errors.h"
#include "kernel_checks.h"
#include "kernel_setup.h"

#include <cstring>

static void of_each_type(void (*check)(unsigned seed, ra_dtype dtype), unsigned seed, unsigned seeds) {
    for (unsigned end = seed + seeds; seed < end; seed++)
        for (ra_dtype dtype : types)
            if (kernel_takes(dtype)) check(seed, dtype);
}

static void all_rows(const kernel_options &o) {
    for (unsigned seed = o.first; seed < o.first + o.seeds / 5; seed++)
        for (ra_dtype dtype : types) check_rows(seed, dtype);
}

/* In the order in which they are done. What takes long is done for a fifth of the seeds, or for one. */
static const struct {
    const char *name;
    void (*run)(const kernel_options &o);
} checks[] = {
    {"rows", all_rows},
    {"bytes", [](const kernel_options &o) { check_bytes(o.first); }},
    {"tiles", [](const kernel_options &o) { check_random(o.first, o.seeds); }},
    {"nonfinite", [](const kernel_options &o) { of_each_type(check_nonfinite, o.first, o.seeds); }},
    {"finished", [](const kernel_options &o) { of_each_type(check_finished, o.first, (o.seeds + 4) / 5); }},
    {"overwrite", [](const kernel_options &o) { of_each_type(check_overwrite, o.first, (o.seeds + 4) / 5); }},
    {"rising", [](const kernel_options &o) { of_each_type(check_rising, o.first, 1); }},
    {"long", [](const kernel_options &o) { of_each_type(check_long, o.first, 1); }},
    {"repeats", [](const kernel_options &o) { check_repeats(o.repeats); }},
};

int main(int argc, char **argv) {
    kernel_options options = {NULL, 1, 60, 20, 0, NULL};
    kernel_options_read(&options, "kernel_check", argc, argv);
    if (!kernel_choose(options.name)) return 0;
    int done = 0;
    for (const auto &check : checks) {
        if (options.check && strcmp(options.check, check.name) != 0) continue;
        check.run(options);
        done++;
    }
    if (!done) fprintf(stderr, "kernel_check: there is no check %s\n", options.check);
    report();
    printf("%d failures\n", failures);
    return failures || !done ? 1 : 0;
}
