/* The CUDA kernels against the definition of a tile and against the ref kernel.
 *
 *   kernel_check [--kernel NAME] [--seeds N] [--seed FIRST] [--repeats N]
 *
 * The kernel is the best one that this GPU can run, unless one is named.
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

int main(int argc, char **argv) {
    kernel_options options = {NULL, 1, 60, 20, 0};
    kernel_options_read(&options, "kernel_check", argc, argv);
    if (!kernel_choose(options.name)) return 0;
    unsigned first = options.first, seeds = options.seeds;
    for (unsigned seed = first; seed < first + seeds / 5; seed++)
        for (ra_dtype dtype : types) check_rows(seed, dtype);
    check_bytes(first);
    check_random(first, seeds);
    for (unsigned seed = first; seed < first + seeds; seed++)
        for (ra_dtype dtype : types)
            if (kernel_takes(dtype)) check_nonfinite(seed, dtype);
    for (unsigned seed = first; seed < first + (seeds + 4) / 5; seed++)
        for (ra_dtype dtype : types)
            if (kernel_takes(dtype)) check_overwrite(seed, dtype);
    for (ra_dtype dtype : types)
        if (kernel_takes(dtype)) check_rising(first, dtype);
    for (ra_dtype dtype : types)
        if (kernel_takes(dtype)) check_long(first, dtype);
    check_repeats(options.repeats);
    report();
    printf("%d failures\n", failures);
    return failures ? 1 : 0;
}
