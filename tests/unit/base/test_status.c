/* Errors: a text per thread, which may quote the one before it, is shortened and not overrun, and stays after a
 * success. */
#include "support/cmocka.h"

#include "base/status.h"

#include <pthread.h>
#include <string.h>

static void test_an_error_can_quote_the_last_one(void **state) {
    (void)state;
    assert_int_equal(ra_fail(RA_ERR_MEMORY, "no %s", "paper"), RA_ERR_MEMORY);
    assert_int_equal(ra_fail(RA_ERR_PEER, "rank %d: %s", 3, ra_last_error()), RA_ERR_PEER);
    assert_string_equal(ra_last_error(), "rank 3: no paper");
}

static void test_a_long_text_is_cut(void **state) {
    (void)state;
    char long_text[5000];
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    ra_fail(RA_ERR_ARGUMENT, "%s", long_text);
    size_t length = strlen(ra_last_error());
    assert_true(length > 500 && length < 4999);
    assert_memory_equal(ra_last_error(), long_text, length);
}

static void *fail_elsewhere(void *count_out) {
    unsigned before = ra_fail_count();
    if (ra_last_error()[0]) return (void *)"an error of another thread";
    ra_fail(RA_ERR_DEVICE, "elsewhere");
    *(unsigned *)count_out = ra_fail_count() - before;
    return NULL;
}

static void test_every_thread_has_its_own(void **state) {
    (void)state;
    pthread_t thread;
    unsigned count = 0, before = ra_fail_count();
    void *wrong = NULL;
    ra_fail(RA_ERR_MEMORY, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &count), 0);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    if (wrong) fail_msg("%s", (const char *)wrong);
    assert_int_equal(count, 1);
    assert_int_equal(ra_fail_count() - before, 1);
    assert_string_equal(ra_last_error(), "here");
}

static ra_status forwards(ra_status first, int *reached) {
    RA_TRY(first);
    *reached = 1;
    return RA_OK;
}

static void test_try_returns_errors_and_nothing_else(void **state) {
    (void)state;
    int reached = 0;
    assert_int_equal(forwards(RA_ERR_TIMEOUT, &reached), RA_ERR_TIMEOUT);
    assert_int_equal(reached, 0);
    assert_int_equal(forwards(RA_OK, &reached), RA_OK);
    assert_int_equal(reached, 1);
}

static void test_every_status_has_a_text_of_its_own(void **state) {
    (void)state;
#define LISTED(name, value, text) name,
    static const ra_status all[] = {RA_STATUS_LIST(LISTED)};
#undef LISTED
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(strlen(ra_status_text(all[i])) > 0);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(ra_status_text(all[i]), ra_status_text(all[j]));
    }
    assert_non_null(ra_status_text((ra_status)999));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_error_can_quote_the_last_one),
        cmocka_unit_test(test_a_long_text_is_cut),
        cmocka_unit_test(test_every_thread_has_its_own),
        cmocka_unit_test(test_try_returns_errors_and_nothing_else),
        cmocka_unit_test(test_every_status_has_a_text_of_its_own),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
