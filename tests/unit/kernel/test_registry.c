/* The table of kernels and how one is found. */
#include "kernel/backend.h"
#include "support/cmocka.h"

#include <string.h>

static void test_every_kernel_is_whole(void **state) {
    (void)state;
    int count = 0;
    for (; ra_kernel_at(count); count++) {
        const ra_kernel *kernel = ra_kernel_at(count), *found = NULL;
        assert_string_equal(kernel->name, ra_kernel_name(count));
        assert_int_equal(kernel->usable(), ra_kernel_usable(count));
        assert_true(kernel->scratch_bytes && kernel->forward && kernel->backward && kernel->begin && kernel->finish);
        assert_true(kernel->delta && kernel->carry && kernel->pack && kernel->add_rows && kernel->add);
        assert_true(kernel->store && kernel->fill);
        if (!kernel->usable()) continue;
        assert_int_equal(RA_OK, ra_backend_find_kernel(&ra_backend_cpu, kernel->name, &found));
        assert_ptr_equal(found, kernel);
    }
    assert_true(count >= 2);
    assert_null(ra_kernel_at(-1));
    assert_null(ra_kernel_name(count));
    assert_int_equal(ra_kernel_usable(count), 0);
}

static void test_auto_is_the_last_usable(void **state) {
    (void)state;
    const ra_kernel *best = NULL, *automatic = NULL, *by_default = NULL;
    for (int i = 0; ra_kernel_at(i); i++)
        if (ra_kernel_usable(i)) best = ra_kernel_at(i);
    assert_int_equal(RA_OK, ra_backend_find_kernel(&ra_backend_cpu, "auto", &automatic));
    assert_int_equal(RA_OK, ra_backend_find_kernel(&ra_backend_cpu, NULL, &by_default));
    assert_ptr_equal(automatic, best);
    assert_ptr_equal(by_default, best);
}

static void test_unknown_name_lists_the_known(void **state) {
    (void)state;
    const ra_kernel *kernel = NULL;
    assert_int_equal(RA_ERR_ARGUMENT, ra_backend_find_kernel(&ra_backend_cpu, "fastest", &kernel));
    assert_null(kernel);
    assert_non_null(strstr(ra_last_error(), "\"fastest\""));
    assert_non_null(strstr(ra_last_error(), "ref"));
    assert_non_null(strstr(ra_last_error(), "portable"));
}

static int never(void) {
    return 0;
}

static const ra_kernel *one_unusable(int index) {
    static const ra_kernel kernel = {.name = "asleep", .usable = never};
    return index == 0 ? &kernel : NULL;
}

/* A machine that has the device but not the instructions. */
static void test_what_cannot_run_is_refused(void **state) {
    (void)state;
    const ra_backend backend = {RA_VERSION_NUMBER, &ra_device_cpu, one_unusable};
    const ra_kernel *kernel = NULL;
    assert_int_equal(RA_ERR_UNSUPPORTED, ra_backend_find_kernel(&backend, "asleep", &kernel));
    assert_non_null(strstr(ra_last_error(), "\"asleep\""));
    assert_int_equal(RA_ERR_UNSUPPORTED, ra_backend_find_kernel(&backend, NULL, &kernel));
    assert_int_equal(RA_ERR_ARGUMENT, ra_backend_find_kernel(&backend, "awake", &kernel));
    assert_null(kernel);
}

static void test_scratch_does_not_depend_on_rows(void **state) {
    (void)state;
    ra_shape few = {.batch = 1,
                    .heads_q = 2,
                    .heads_kv = 1,
                    .dim = 64,
                    .dim_v = 64,
                    .rows_q = 10,
                    .states = 1,
                    .scale = 1,
                    .weight = 1,
                    .dtype = RA_F32,
                    .out_dtype = RA_F32},
             many = few;
    many.rows_q = 1000000;
    for (int i = 0; ra_kernel_at(i); i++) {
        const ra_kernel *kernel = ra_kernel_at(i);
        if (!kernel->usable()) continue;
        for (int backward = 0; backward < 2; backward++) {
            assert_int_equal(kernel->scratch_bytes(&few, 3, backward), kernel->scratch_bytes(&many, 3, backward));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel_is_whole),           cmocka_unit_test(test_auto_is_the_last_usable),
        cmocka_unit_test(test_unknown_name_lists_the_known),    cmocka_unit_test(test_what_cannot_run_is_refused),
        cmocka_unit_test(test_scratch_does_not_depend_on_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
