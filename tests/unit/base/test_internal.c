/* The two libraries refuse each other when they were built for different internal versions, in a sentence that names
 * both. And the version is raised with what it stands for, as far as sizes show. */
#include "support/cmocka.h"

#include "base/internal.h"
#include "core/join_rounds.h"
#include "kernel/backend.h"

#include <stdio.h>
#include <string.h>

static void must_say(const char *part) {
    if (!strstr(ra_last_error(), part)) fail_msg("\"%s\" does not say \"%s\"", ra_last_error(), part);
}

static void must_name(int version) {
    char number[32];
    snprintf(number, sizeof number, "%d", version);
    must_say(number);
}

static void test_another_library(void **state) {
    (void)state;
    assert_int_equal(ra_internal_check("libringattn_cuda", RA_INTERNAL_VERSION), RA_OK);
    for (int away = -1; away <= 1; away += 2) {
        assert_int_equal(ra_internal_check("libringattn_cuda", RA_INTERNAL_VERSION + away), RA_ERR_UNSUPPORTED);
        must_say("libringattn_cuda");
        must_name(RA_INTERNAL_VERSION);
        must_name(RA_INTERNAL_VERSION + away);
    }
}

static void test_another_backend(void **state) {
    (void)state;
    ra_backend backend = ra_backend_cpu;
    const ra_backend *found = NULL;
    assert_int_equal(ra_backend_check(&backend, &found), RA_OK);
    assert_ptr_equal(found, &backend);
    backend.version++;
    assert_int_equal(ra_backend_check(&backend, &found), RA_ERR_UNSUPPORTED);
    must_name(RA_INTERNAL_VERSION);
    must_name(RA_INTERNAL_VERSION + 1);
}

/* What the libraries give each other has these sizes in the version of this number. Who changes one raises the
 * version. */
enum { NUMBER = 10 };
static const struct {
    const char *name;
    size_t size, expected;
} structures[] = {
#define SIZE(type, expected)                                                                                           \
    { #type, sizeof(type), expected }
    SIZE(ra_backend, 24),        SIZE(ra_device, 152),         SIZE(ra_kernel, 192),       SIZE(ra_shape, 80),
    SIZE(ra_view, 40),           SIZE(ra_kv_rows, 184),        SIZE(ra_state, 64),         SIZE(ra_context, 48),
    SIZE(ra_list_size, 16),      SIZE(ra_forward_results, 88), SIZE(ra_forward_call, 240), SIZE(ra_query_rows, 328),
    SIZE(ra_backward_call, 328), SIZE(ra_tile, 152),           SIZE(ra_tile_list, 48),     SIZE(ra_span, 24),
    SIZE(ra_pool, 16),           SIZE(ra_work_costs, 40),
#undef SIZE
};

static void test_sizes_are_of_this_version(void **state) {
    (void)state;
    assert_int_equal(RA_INTERNAL_VERSION % 100, NUMBER);
    if (sizeof(void *) != 8) skip();
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        if (structures[i].size != structures[i].expected)
            fail_msg("%s has %zu bytes, and %zu in internal version %d", structures[i].name, structures[i].size,
                     structures[i].expected, RA_INTERNAL_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_another_backend),
        cmocka_unit_test(test_sizes_are_of_this_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
