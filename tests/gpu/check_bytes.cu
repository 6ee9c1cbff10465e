/* Copies and zeros within device memory: what was asked for, and nothing beside it. */
#include "check_device.h"
#include "check_errors.h"
#include "device/cuda/device_bytes.h"
#include "kernel_checks.h"

#include <algorithm>
#include <cstring>

/* Bytes before and behind, which must stay as they are. */
enum { MARGIN = 64 };

static std::vector<unsigned char> random_bytes(rng *r, size_t bytes) {
    std::vector<unsigned char> x(bytes);
    for (size_t at = 0; at < bytes; at += 4) {
        int64_t four = rng_between(r, 0, UINT32_MAX);
        memcpy(&x[at], &four, std::min((size_t)4, bytes - at));
    }
    return x;
}

/* shift: of both ends, from where chunks of 16 bytes start. */
static void check_size(rng *r, size_t bytes, size_t shift) {
    std::vector<unsigned char> to = random_bytes(r, bytes + 2 * MARGIN), from = random_bytes(r, bytes + MARGIN);
    unsigned char *gpu_to = (unsigned char *)take_copy(to.data(), to.size());
    unsigned char *gpu_from = (unsigned char *)take_copy(from.data(), from.size());
    CHECK(gpu_bytes_copy(gpu_to + MARGIN + shift, gpu_from + shift, bytes - shift, NULL));
    std::copy(from.begin() + shift, from.begin() + bytes, to.begin() + MARGIN + shift);
    std::vector<unsigned char> got = bytes_from(gpu_to, to.size());
    expect(std::equal(to.begin(), to.end(), got.begin()), "copy within the device", (unsigned)bytes, RA_F32);
    CHECK(gpu_bytes_zero(gpu_to + MARGIN + shift, bytes - shift, NULL));
    std::fill(to.begin() + MARGIN + shift, to.begin() + MARGIN + bytes, 0);
    got = bytes_from(gpu_to, to.size());
    expect(std::equal(to.begin(), to.end(), got.begin()), "zeros", (unsigned)bytes, RA_F32);
    give_all_back();
}

void check_bytes(unsigned seed) {
    rng r = {seed};
    for (size_t bytes : {(size_t)16, (size_t)1 << 20, ((size_t)1 << 20) + 16, (size_t)3000001, (size_t)9000000})
        for (size_t shift : {0, 5}) check_size(&r, bytes, shift);
}
