/* Structures that can grow: a caller's shorter one is read over the defaults and written no further than it goes; one
 * that is longer than the library knows, or was not initialised, is refused by name. */
#include "support/cmocka.h"

#include "base/sized.h"

#include <stdio.h>
#include <string.h>

typedef struct grown {
    size_t struct_size;
    int64_t first, second, third;
} grown;

/* Every size from the least to what is known, a byte at a time. */
static void test_reading_every_size(void **state) {
    (void)state;
    grown given = {0, 1, 2, 3};
    const size_t least = offsetof(grown, second);
    for (size_t size = 0; size <= sizeof given + 9; size++) {
        grown seen = {sizeof seen, -1, -1, -1}, want = seen;
        given.struct_size = size;
        ra_status status = ra_sized_read("grown", &given, least, sizeof seen, &seen);
        if (size < least || size > sizeof given) {
            char number[32];
            snprintf(number, sizeof number, "is %zu,", size);
            assert_int_equal(status, RA_ERR_ARGUMENT);
            assert_non_null(strstr(ra_last_error(), "grown"));
            assert_non_null(strstr(ra_last_error(), number));
            assert_memory_equal(&seen, &want, sizeof seen);
            continue;
        }
        memcpy((char *)&want + sizeof(size_t), (char *)&given + sizeof(size_t), size - sizeof(size_t));
        assert_int_equal(status, RA_OK);
        assert_memory_equal(&seen, &want, sizeof seen);
    }
    assert_int_equal(ra_sized_read("grown", NULL, least, sizeof given, &given), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "grown is NULL"));
}

static void test_writing_every_size(void **state) {
    (void)state;
    const grown from = {sizeof from, 1, 2, 3};
    for (size_t size = 0; size <= sizeof from + 9; size++) {
        grown given = {size, -1, -1, -1}, want = given;
        ra_status status = ra_sized_write("grown", &from, sizeof from, &given);
        int fits = size >= sizeof(size_t) && size <= sizeof from;
        if (fits) memcpy((char *)&want + sizeof(size_t), (char *)&from + sizeof(size_t), size - sizeof(size_t));
        assert_int_equal(status, fits ? RA_OK : RA_ERR_ARGUMENT);
        assert_memory_equal(&given, &want, sizeof given);
    }
    assert_int_equal(ra_sized_write("grown", &from, sizeof from, NULL), RA_ERR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading_every_size),
        cmocka_unit_test(test_writing_every_size),
    };
    return cmocka_run_group_tests_name("sized", tests, NULL, NULL);
}
