#include "base/sha256.h"

#include <string.h>

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

/* words: the block's 16, and 48 more made of them */
static void expand(const unsigned char *block, uint32_t *words) {
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
                   block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] =
            words[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + words[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

static void compress(uint32_t *state, const unsigned char *block) {
    uint32_t words[64], s[8];
    expand(block, words);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t choose = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + choose + ROUND[i] + words[i];
        uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void ra_sha256_start(ra_sha256 *hash) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(hash, 0, sizeof *hash);
    memcpy(hash->state, first, sizeof first);
}

void ra_sha256_add(ra_sha256 *hash, const void *data, size_t bytes) {
    const unsigned char *from = data;
    for (size_t i = 0; i < bytes; i++) {
        hash->block[hash->bytes++ % sizeof hash->block] = from[i];
        if (hash->bytes % sizeof hash->block == 0) compress(hash->state, hash->block);
    }
}

void ra_sha256_end(ra_sha256 *hash, unsigned char *digest_out) {
    uint64_t bits = 8 * hash->bytes;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ra_sha256_add(hash, "\x80", 1);
    while (hash->bytes % sizeof hash->block != sizeof hash->block - sizeof length) ra_sha256_add(hash, "", 1);
    ra_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < RA_SHA256_BYTES; i++) digest_out[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void hash_with(const unsigned char *key, unsigned char mask, const void *data, size_t bytes,
                      unsigned char *digest_out) {
    ra_sha256 hash;
    unsigned char pad[64];
    for (size_t i = 0; i < sizeof pad; i++) pad[i] = key[i] ^ mask;
    ra_sha256_start(&hash);
    ra_sha256_add(&hash, pad, sizeof pad);
    ra_sha256_add(&hash, data, bytes);
    ra_sha256_end(&hash, digest_out);
}

void ra_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, unsigned char *digest_out) {
    unsigned char block[64] = {0}, inner[RA_SHA256_BYTES];
    if (key_bytes > sizeof block) {
        ra_sha256 hash;
        ra_sha256_start(&hash);
        ra_sha256_add(&hash, key, key_bytes);
        ra_sha256_end(&hash, block);
    } else if (key_bytes > 0) {
        memcpy(block, key, key_bytes);
    }
    hash_with(block, 0x36, data, bytes, inner);
    hash_with(block, 0x5c, inner, sizeof inner, digest_out);
}

int ra_digest_equal(const unsigned char *a, const unsigned char *b) {
    unsigned differ = 0;
    for (int i = 0; i < RA_SHA256_BYTES; i++) differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}
