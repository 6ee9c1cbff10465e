#include "support/cmocka.h"

#include "transport/nccl/nccl_api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define HAVE_HEADER 1
#endif

static void test_refusals(void **state) {
    (void)state;
    ra_nccl_api api;
    assert_int_equal(ra_nccl_open_library("libnccl-that-is-not-there.so.2", &api), RA_ERR_UNSUPPORTED);
    assert_non_null(strstr(ra_last_error(), "NCCL is not installed"));
    assert_non_null(strstr(ra_last_error(), "libnccl-that-is-not-there.so.2"));
    assert_int_equal(ra_nccl_open_library("libm.so.6", &api), RA_ERR_UNSUPPORTED);
    assert_non_null(strstr(ra_last_error(), "ncclGetVersion"));
    assert_non_null(strstr(ra_last_error(), "2.14"));
}

/* Torch's NCCL is loaded from a folder that nobody looks in: it is taken, whatever else there is on the machine. */
static void test_the_loaded_one_comes_first(void **state) {
    (void)state;
    const ra_nccl_api *api = NULL, *again = NULL;
    int version = 0;
    assert_non_null(dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL));
    assert_int_equal(ra_nccl_load(&api), RA_OK);
    assert_int_equal(api->ncclGetVersion(&version), RA_NCCL_SUCCESS);
    assert_int_equal(version, 99999);
    assert_int_equal(ra_nccl_load(&again), RA_OK);
    assert_ptr_equal(api, again);
}

#ifdef HAVE_HEADER
/* What nccl_api.h declares is what NCCL's own header does. */
static void test_the_header_agrees(void **state) {
    (void)state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(RA_NCCL_SUCCESS, ncclSuccess);
    assert_int_equal(RA_NCCL_REMOTE_ERROR, ncclRemoteError);
    assert_int_equal(RA_NCCL_IN_PROGRESS, ncclInProgress);
    assert_int_equal(RA_NCCL_UINT8, ncclUint8);
    assert_int_equal(sizeof(ra_nccl_id), sizeof(ncclUniqueId));
    assert_int_equal(sizeof(int), sizeof(ncclResult_t));
    assert_int_equal(offsetof(ra_nccl_config, size), offsetof(ncclConfig_t, size));
    assert_int_equal(offsetof(ra_nccl_config, magic), offsetof(ncclConfig_t, magic));
    assert_int_equal(offsetof(ra_nccl_config, version), offsetof(ncclConfig_t, version));
    assert_int_equal(offsetof(ra_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
    assert_int_equal(RA_NCCL_CONFIG_MAGIC, config.magic);
    assert_true(RA_NCCL_CONFIG_VERSION <= config.version);
    assert_int_equal(RA_NCCL_CONFIG_VERSION, NCCL_VERSION(2, 14, 0));
}
#else
static void test_the_header_agrees(void **state) {
    (void)state;
    skip(); /* there is none here */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_the_loaded_one_comes_first),
                                       cmocka_unit_test(test_the_header_agrees)};
    return cmocka_run_group_tests_name("nccl_api", tests, NULL, NULL);
}
