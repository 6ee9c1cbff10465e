/* The CPU as a device: aligned memory, zeroes, and nothing to enter or wait for. */
#include "support/cmocka.h"

#include "device/device.h"

#include <string.h>

static void test_memory_is_aligned_and_can_be_released(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4097, 1 << 20};
    const ra_device *cpu = &ra_device_cpu;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *memory = cpu->allocate(cpu, sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        memset(memory, 0xa5, sizes[i]);
        cpu->release(cpu, memory);
    }
}

static void test_zero_zeroes_what_it_is_given(void **state) {
    (void)state;
    unsigned char bytes[96];
    memset(bytes, 7, sizeof bytes);
    ra_device_cpu.zero(&ra_device_cpu, bytes + 16, 64, NULL);
    for (int i = 0; i < 96; i++) assert_int_equal(bytes[i], i >= 16 && i < 80 ? 0 : 7);
    ra_device_cpu.zero(&ra_device_cpu, bytes, 0, NULL);
    assert_int_equal(bytes[0], 7);
}

static void test_there_is_nothing_to_enter(void **state) {
    (void)state;
    int previous = 99;
    assert_false(ra_device_is_asynchronous(&ra_device_cpu));
    assert_false(ra_device_is_asynchronous(NULL));
    assert_int_equal(ra_device_enter(&ra_device_cpu, &previous), RA_OK);
    assert_int_equal(previous, 0);
    ra_device_leave(&ra_device_cpu, previous);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_aligned_and_can_be_released),
        cmocka_unit_test(test_zero_zeroes_what_it_is_given),
        cmocka_unit_test(test_there_is_nothing_to_enter),
    };
    return cmocka_run_group_tests_name("device_cpu", tests, NULL, NULL);
}
