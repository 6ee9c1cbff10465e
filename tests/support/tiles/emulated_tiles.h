/* The tile instructions of AMX in plain C, for machines without them. To be included before code that uses them. */
#ifndef RA_TESTS_SUPPORT_EMULATED_TILES_H
#define RA_TESTS_SUPPORT_EMULATED_TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static unsigned char emulated_tiles[8][16][64];

static inline void emulated_load(int tile, const void *from, int64_t stride) {
    for (int r = 0; r < 16; r++) memcpy(emulated_tiles[tile][r], (const char *)from + r * stride, 64);
}

static inline void emulated_store(int tile, void *to, int64_t stride) {
    for (int r = 0; r < 16; r++) memcpy((char *)to + r * stride, emulated_tiles[tile][r], 64);
}

static inline float emulated_bf16(const unsigned char *at) {
    unsigned char bytes[4] = {0, 0, at[0], at[1]};
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* c [16, 16] of float += a [16, 32] . b [32, 16], both of bf16, b in pairs of its rows. */
static inline void emulated_dot(int c, int a, int b) {
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) {
            float sum;
            memcpy(&sum, &emulated_tiles[c][i][4 * j], sizeof sum);
            for (int k = 0; k < 32; k++)
                sum += emulated_bf16(&emulated_tiles[a][i][2 * k]) *
                       emulated_bf16(&emulated_tiles[b][k / 2][4 * j + k % 2 * 2]);
            memcpy(&emulated_tiles[c][i][4 * j], &sum, sizeof sum);
        }
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_zero
#undef _tile_loadconfig
#undef _tile_release
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_store(tile, to, stride)
#define _tile_dpbf16ps(c, a, b) emulated_dot(c, a, b)
#define _tile_zero(tile) memset(emulated_tiles[tile], 0, sizeof emulated_tiles[tile])
#define _tile_loadconfig(config) ((void)(config))
#define _tile_release() ((void)0)

#endif
