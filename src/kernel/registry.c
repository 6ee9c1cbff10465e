/* The CPU's kernels, best last. Each starts as the one before it in the table and overrides what it has of its own; the
 * first starts with the row operations, which all of them have in common. backend.c finds one by name. */
#include "kernel/cpu/amx/amx.h"
#include "kernel/cpu/avx2/avx2.h"
#include "kernel/cpu/avx512/avx512.h"
#include "kernel/cpu/avx512bf16/avx512bf16.h"
#include "kernel/cpu/portable/portable.h"
#include "kernel/kernel.h"
#include "kernel/ref/ref.h"
#include "kernel/rows.h"

#include <pthread.h>

static const struct {
    const char *name;
    void (*override)(ra_kernel *kernel);
} table[] = {
    {"ref", ra_ref_override},   {"portable", ra_portable_override},
#if defined(__x86_64__)
    {"avx2", ra_avx2_override}, {"avx512", ra_avx512_override},     {"avx512bf16", ra_avx512bf16_override},
    {"amx", ra_amx_override},
#endif
};

enum { KERNELS = sizeof table / sizeof *table };

static ra_kernel kernels[KERNELS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
    ra_kernel kernel = {.begin = ra_rows_begin,
                        .merge = ra_rows_merge,
                        .finish = ra_rows_finish,
                        .delta = ra_rows_delta,
                        .carry = ra_rows_carry,
                        .pack = ra_rows_pack,
                        .add_rows = ra_rows_add_rows,
                        .add = ra_rows_add,
                        .store = ra_rows_store,
                        .fill = ra_rows_fill};
    for (int i = 0; i < KERNELS; i++) {
        kernel.name = table[i].name;
        table[i].override(&kernel);
        kernels[i] = kernel;
    }
}

const ra_kernel *ra_kernel_at(int index) {
    pthread_once(&once, fill);
    return index >= 0 && index < KERNELS ? &kernels[index] : NULL;
}

const char *ra_kernel_name(int index) {
    const ra_kernel *kernel = ra_kernel_at(index);
    return kernel ? kernel->name : NULL;
}

int ra_kernel_usable(int index) {
    const ra_kernel *kernel = ra_kernel_at(index);
    return kernel ? kernel->usable() : 0;
}
