/* Inline assembly, as translate.py has it: the text of a statement, which is taken apart once, and operands. */
#ifndef TESTS_EMULATOR_PTX_H
#define TESTS_EMULATOR_PTX_H

#include <cstring>
#include <memory>
#include <stdint.h>

namespace emulator {
namespace ptx {

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A register of the caller's, or a value. */
struct operand {
    void *to = nullptr;
    int bytes = 0; /* of the register */
    uint64_t value = 0;
};

template <class T> static inline operand register_of(T &x) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a register of 32 or 64 bits");
    return {&x, sizeof(T), 0};
}

static inline operand value_of_r(uint32_t x) {
    return {nullptr, 4, x};
}

static inline operand value_of_l(uint64_t x) {
    return {nullptr, 8, x};
}

static inline operand value_of_l(const void *x) {
    return {nullptr, 8, (uint64_t)x};
}

static inline operand value_of_f(float x) {
    return {nullptr, 4, bits_of(x)};
}

static inline operand constant(int64_t x) {
    return {nullptr, 8, (uint64_t)x};
}

struct parsed;

class code {
  public:
    explicit code(const char *text);
    ~code();
    void run(const operand *operands) const;

  private:
    std::unique_ptr<parsed> instructions;
};

} // namespace ptx
} // namespace emulator

#endif
