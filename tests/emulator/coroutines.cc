/* Switches between stacks. Checked jumps refuse those to other stacks. */
#undef _FORTIFY_SOURCE
#include "coroutines.h"

#include <csetjmp>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace emulator {

thread *self;

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 4096 };

/* setcontext begins a coroutine; all later switches are jumps, which make no system calls. */
struct coroutine {
    const std::function<void()> *kernel = nullptr;
    jmp_buf where;
    ucontext_t start;
    bool begun = false;
    char *stack = nullptr;
};

static jmp_buf scheduler;
static std::vector<char *> free_stacks;

static char *take_stack(void) {
    if (!free_stacks.empty()) {
        char *stack = free_stacks.back();
        free_stacks.pop_back();
        return stack;
    }
    void *stack =
        mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) fail("no memory for the stack of a thread");
    mprotect(stack, GUARD_BYTES, PROT_NONE);
    return (char *)stack;
}

static void be_thread(void) {
    (*self->own->kernel)();
    self->ended = true;
    _longjmp(scheduler, 1);
}

void go_on(thread *t) {
    coroutine *c = t->own;
    self = t;
    if (_setjmp(scheduler)) return;
    if (c->begun) _longjmp(c->where, 1);
    c->begun = true;
    setcontext(&c->start);
}

void leave(void) {
    if (!_setjmp(self->own->where)) _longjmp(scheduler, 1);
}

void make_coroutine(thread *t, const std::function<void()> *kernel) {
    coroutine *c = new coroutine;
    c->kernel = kernel;
    c->stack = take_stack();
    getcontext(&c->start);
    c->start.uc_stack.ss_sp = c->stack + GUARD_BYTES;
    c->start.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES;
    c->start.uc_link = nullptr;
    makecontext(&c->start, be_thread, 0);
    t->own = c;
}

void free_coroutine(thread *t) {
    free_stacks.push_back(t->own->stack);
    delete t->own;
    t->own = nullptr;
}

} // namespace emulator
