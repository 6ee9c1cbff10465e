/* The product by tiles against plain sums, on emulated tiles: which tiles it multiplies, and that it touches nothing
 * beyond its factors, is then tested on every machine. */
#include "support/cmocka.h"
#include "support/rng.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "support/tiles/emulated_tiles.h"

#include "kernel/cpu/amx/product_amx.h"

/* Small whole numbers: every sum is exact. */
static half small(rng *r) {
    static const half values[] = {0, 0x3f80 /* 1 */, 0xbf80 /* -1 */, 0x4000 /* 2 */, 0xc040 /* -3 */};
    return values[rng_between(r, 0, 4)];
}

static float widen(half x) {
    const unsigned char bytes[2] = {(unsigned char)(x & 0xff), (unsigned char)(x >> 8)};
    return emulated_bf16(bytes);
}

static void check(rng *r, enum product_kind kind, int64_t m, int64_t n, int64_t depth) {
    int64_t a_row = depth + rng_between(r, 0, 3), c_row = n + rng_between(r, 0, 3);
    half *a = malloc((size_t)((m - 1) * a_row + depth) * sizeof *a), *b = malloc((size_t)(depth * n) * sizeof *b);
    float *c = malloc((size_t)((m - 1) * c_row + n) * sizeof *c);
    assert_true(a && b && c);
    for (int64_t i = 0; i < (m - 1) * a_row + depth; i++) a[i] = small(r);
    for (int64_t i = 0; i < depth * n; i++) b[i] = small(r);
    for (int64_t i = 0; i < (m - 1) * c_row + n; i++) c[i] = 7;
    begin_products();
    product(kind, c, c_row, m, a, a_row, (bf16_panels){b, depth * COLUMNS, depth, n});
    end_products();
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float want = kind == ADD ? 7 : 0;
            for (int64_t k = 0; k < depth; k++)
                want += widen(a[i * a_row + k]) *
                        widen(b[j / COLUMNS * depth * COLUMNS + k / 2 * LINE + j % COLUMNS * 2 + k % 2]);
            if (c[i * c_row + j] != want)
                fail_msg("%d x %d x %d: (%d, %d)", (int)m, (int)n, (int)depth, (int)i, (int)j);
        }
    }
    free(a);
    free(b);
    free(c);
}

static void test_product(void **state) {
    (void)state;
    rng r = {1};
    print_message("seed 1\n");
    for (int64_t m = 16; m <= 80; m += 16)
        for (int64_t n = 16; n <= 64; n += 16)
            for (int64_t depth = 32; depth <= 96; depth += 32) {
                check(&r, STORE, m, n, depth);
                check(&r, ADD, m, n, depth);
            }
}
#else
static void test_product(void **state) {
    (void)state;
    print_message("not for this processor\n");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_product)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
