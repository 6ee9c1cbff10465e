/* The two libraries refuse each other when they were built for different internal versions, in a sentence that names
 * both. */
#include "support/cmocka.h"

#include "base/internal.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_another_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
