/* Threads as coroutines: each has a stack of its own, and goes on where it left. */
#ifndef TESTS_EMULATOR_COROUTINES_H
#define TESTS_EMULATOR_COROUTINES_H

#include "emulator.h"

namespace emulator {

/* t has a coroutine, which begins with `kernel` when it first goes on, or none any more. */
void make_coroutine(thread *t, const std::function<void()> *kernel);
void free_coroutine(thread *t);

/* t is the running thread until it leaves or has ended. */
void go_on(thread *t);

/* Back to who said that the running thread may go on. */
void leave(void);

} // namespace emulator

#endif
