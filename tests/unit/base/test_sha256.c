/* The digests of FIPS 180-4's examples and the first of RFC 4231's HMAC test cases. */
#include "base/sha256.h"
#include "support/cmocka.h"

#include <stdio.h>
#include <string.h>

static void assert_digest(const unsigned char *digest, const char *want) {
    char text[2 * RA_SHA256_BYTES + 1];
    for (int i = 0; i < RA_SHA256_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, want);
}

static void assert_hash(const char *data, size_t bytes, size_t piece, const char *want) {
    ra_sha256 hash;
    unsigned char digest[RA_SHA256_BYTES];
    ra_sha256_start(&hash);
    for (size_t at = 0; at < bytes; at += piece)
        ra_sha256_add(&hash, data + at, bytes - at < piece ? bytes - at : piece);
    ra_sha256_end(&hash, digest);
    assert_digest(digest, want);
}

static void hashes_examples(void **state) {
    static char million[1000000];
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    (void)state;
    assert_hash("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_hash("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece < 60; piece += 7)
        assert_hash(two, strlen(two), piece, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', sizeof million);
    assert_hash(million, sizeof million, 4097, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void signs_examples(void **state) {
    unsigned char key[131], digest[RA_SHA256_BYTES];
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
    (void)state;
    memset(key, 0x0b, 20);
    ra_hmac(key, 20, "Hi There", 8, digest);
    assert_digest(digest, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    ra_hmac("Jefe", 4, "what do ya want for nothing?", 28, digest);
    assert_digest(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    ra_hmac(key, sizeof key, text, strlen(text), digest);
    assert_digest(digest, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void compares(void **state) {
    unsigned char a[RA_SHA256_BYTES] = {1}, b[RA_SHA256_BYTES] = {1};
    (void)state;
    assert_true(ra_digest_equal(a, b));
    b[RA_SHA256_BYTES - 1] = 1;
    assert_false(ra_digest_equal(a, b));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hashes_examples), cmocka_unit_test(signs_examples),
                                       cmocka_unit_test(compares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
