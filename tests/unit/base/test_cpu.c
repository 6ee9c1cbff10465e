/* CPU features by name: what is listed is had, and nothing else. */
#include "base/cpu.h"
#include "support/cmocka.h"

#include <ringattn/ringattn.h>

#include <string.h>

static void test_listed_features_are_had(void **state) {
    (void)state;
    char list[256];
    strncpy(list, ra_cpu_features(), sizeof list - 1);
    list[sizeof list - 1] = 0;
    for (char *word = strtok(list, " "); word; word = strtok(NULL, " ")) assert_true(ra_cpu_has(word));
    assert_ptr_equal(ra_cpu_features(), ra_cpu_features());
}

static void test_parts_of_names_are_not(void **state) {
    (void)state;
    assert_false(ra_cpu_has(""));
    assert_false(ra_cpu_has(" "));
    assert_false(ra_cpu_has("av"));
    assert_false(ra_cpu_has("vx2"));
    assert_false(ra_cpu_has("avx2 fma"));
    assert_false(ra_cpu_has("no_such_feature"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listed_features_are_had),
        cmocka_unit_test(test_parts_of_names_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
