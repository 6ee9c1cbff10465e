/* Allocations that fail on purpose. Programs that use it are linked with --wrap for malloc, calloc and realloc, so that
 * it meets what ringattn asks for, and not what MPI or UCX does. */
#ifndef RA_TESTS_FAILING_MEMORY_H
#define RA_TESTS_FAILING_MEMORY_H

#include <stddef.h>

static long memory_calls, memory_fails_at = -1; /* the number of the call that fails, from 0; -1: none */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static int memory_fails(void) {
    return memory_calls++ == memory_fails_at;
}

void *__wrap_malloc(size_t bytes) {
    return memory_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return memory_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return memory_fails() ? NULL : __real_realloc(memory, bytes);
}

/* The call numbered `index` from here on fails. */
static void fail_memory(long index) {
    memory_calls = 0;
    memory_fails_at = index;
}

#endif
