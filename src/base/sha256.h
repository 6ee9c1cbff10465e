/* SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104): how one process shows another that it knows a key without sending
 * it. */
#ifndef RA_BASE_SHA256_H
#define RA_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { RA_SHA256_BYTES = 32 };

typedef struct ra_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64]; /* what does not fill one yet */
} ra_sha256;

void ra_sha256_start(ra_sha256 *hash);
void ra_sha256_add(ra_sha256 *hash, const void *data, size_t bytes);
void ra_sha256_end(ra_sha256 *hash, unsigned char *digest_out);

void ra_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, unsigned char *digest_out);

/* In a time that does not depend on where they differ. */
int ra_digest_equal(const unsigned char *a, const unsigned char *b);

#endif
