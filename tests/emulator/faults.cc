/* What is wrong ends the program, and it says where. */
#include "launched_blocks.h"

#include <cstdarg>
#include <cstdio>

namespace emulator {

static void describe(const thread &t) {
    fprintf(stderr, "block %u, thread %u", t.of->index.x, t.index.x);
    if (t.waits_for) fprintf(stderr, ": waits for %s %u", t.waits_for, t.waits_at);
    fprintf(stderr, "\n");
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "emulator: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    if (self) describe(*self);
    abort();
}

/* Lanes that wait for what the lane before waits for are left out. */
static bool is_told(const thread *t, const thread *before) {
    return before && t->lane && before->waits_for == t->waits_for && before->waits_at == t->waits_at &&
           before->ended == t->ended;
}

void fail_asleep(const char *what) {
    fprintf(stderr, "emulator: %s\n", what);
    for (const cluster &c : clusters_under_way())
        for (const auto &b : c.blocks) {
            const thread *before = nullptr;
            for (const auto &t : b->threads) {
                if (!t->ended && !is_told(t.get(), before)) describe(*t);
                before = t.get();
            }
        }
    abort();
}

} // namespace emulator
