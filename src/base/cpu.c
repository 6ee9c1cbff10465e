/* CPU features by name. The compiler's run-time check looks at the operating system too (registers it must save); AMX,
 * which compilers do not know alike, is asked for by cpuid and xgetbv. */
#define _DEFAULT_SOURCE /* syscall */

#include "base/cpu.h"

#include <ringattn/ringattn.h>

#include <pthread.h>
#include <stdint.h>
#include <string.h>

static char features[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* CPUID leaf 7: edx bit 22 AMX-BF16, bit 24 AMX-TILE. XCR0 bits 17 and 18: the system saves the tile registers. */
static int has_amx_bf16(void) {
    unsigned a, b, c, d, xcr0, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if ((xcr0 & 0x60000u) != 0x60000u || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (d & 1u << 22) != 0 && (d & 1u << 24) != 0;
}

static int has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0 && __builtin_cpu_supports("avx");
}

static void append(const char *name, int present) {
    if (!present) return;
    if (features[0]) strcat(features, " ");
    strcat(features, name);
}

static int slow_on_subnormals;

static void detect(void) {
    __builtin_cpu_init();
    slow_on_subnormals = __builtin_cpu_is("intel") != 0;
    append("sse4.2", __builtin_cpu_supports("sse4.2"));
    append("avx", __builtin_cpu_supports("avx"));
    append("avx2", __builtin_cpu_supports("avx2"));
    append("fma", __builtin_cpu_supports("fma"));
    append("f16c", has_f16c());
    append("avx512f", __builtin_cpu_supports("avx512f"));
    append("avx512bw", __builtin_cpu_supports("avx512bw"));
    append("avx512dq", __builtin_cpu_supports("avx512dq"));
    append("avx512vl", __builtin_cpu_supports("avx512vl"));
    append("avx512_bf16", __builtin_cpu_supports("avx512bf16"));
    append("amx_bf16", has_amx_bf16());
}
#else
static const int slow_on_subnormals = 0;

static void detect(void) {
}
#endif

const char *ra_cpu_features(void) {
    pthread_once(&once, detect);
    return features;
}

int ra_cpu_is_slow_on_subnormals(void) {
    pthread_once(&once, detect);
    return slow_on_subnormals;
}

int ra_cpu_has(const char *feature) {
    size_t length = strlen(feature);
    for (const char *at = ra_cpu_features(); *at;) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, feature, length) == 0) return 1;
        at += word + (at[word] == ' ');
    }
    return 0;
}

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

static int tiles_allowed;
static pthread_once_t tiles_once = PTHREAD_ONCE_INIT;

/* Linux saves 8 KiB of tiles for each thread of a process only when the process has asked for it. */
static void ask_for_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    tiles_allowed = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

int ra_cpu_allow_tiles(void) {
    pthread_once(&tiles_once, ask_for_tiles);
    return tiles_allowed;
}
#else
int ra_cpu_allow_tiles(void) {
    return 0;
}
#endif
