/* Instructions taken apart, and what the files that carry them out share. */
#ifndef TESTS_EMULATOR_PTX_CODE_H
#define TESTS_EMULATOR_PTX_CODE_H

#include "launched_blocks.h"
#include "ptx.h"

#include <string>
#include <vector>

namespace emulator {
namespace ptx {

enum { MOST_LOCALS = 4 };

/* %3, a name that .reg declares, or a number. */
struct reference {
    enum { OPERAND, LOCAL, NUMBER, NONE } kind = NONE;
    int index = 0;
    uint64_t number = 0;
};

struct frame;
struct instruction;

typedef void (*action)(frame &, const instruction &);

struct instruction {
    std::string name;
    action act = nullptr;
    std::vector<std::vector<reference>> parts; /* operands; those of [ ] and { } have several references */
    int guard = -1;                            /* the local that says whether it is done; -1: it is */
    int target = 0;                            /* of a branch */
};

/* Of one run of a statement, by one thread. */
struct frame {
    const operand *operands;
    uint64_t locals[MOST_LOCALS] = {};
    size_t next = 0;

    uint64_t get(const reference &r) const {
        if (r.kind == reference::NUMBER) return r.number;
        if (r.kind == reference::LOCAL) return locals[r.index];
        const operand &o = operands[r.index];
        if (!o.to) return o.value;
        uint64_t x = 0;
        memcpy(&x, o.to, o.bytes == 4 ? 4 : 8);
        return x;
    }
    void set(const reference &r, uint64_t x) {
        if (r.kind == reference::LOCAL) locals[r.index] = x;
        if (r.kind == reference::OPERAND) memcpy(operands[r.index].to, &x, operands[r.index].bytes == 4 ? 4 : 8);
    }
    uint64_t get(const instruction &i, size_t part, size_t at = 0) const {
        return get(i.parts[part][at]);
    }
    void set(const instruction &i, size_t part, uint64_t x, size_t at = 0) {
        set(i.parts[part][at], x);
    }
    float number(const instruction &i, size_t part, size_t at = 0) const {
        return float_of((uint32_t)get(i, part, at));
    }
};

/* What is called so, or begins so up to a dot. The longest that fits is taken. */
struct known {
    const char *name;
    action act;
};

/* Of each file, ending with NULL. */
extern const known plain_instructions[], shared_instructions[], copy_instructions[], mma_instructions[],
    wgmma_instructions[];

/* ---- numbers of 16 bits ------------------------------------------------------------------------------------------ */

float bf16_value(uint16_t x);
float f16_value(uint16_t x); /* from a table */
uint16_t bf16_of(float x);
uint16_t f16_of(float x);

} // namespace ptx
} // namespace emulator

#endif
