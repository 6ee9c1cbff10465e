/* wgmma: products of the tensor cores that are done some time between their start and the wait for them, those of a
 * warp one after the other. Each warp of the four multiplies its 16 rows by itself, when its lanes have come. Sums are
 * of f32, in the order of the depth.
 *
 * Operands in shared memory and the sums are read when the product is done, so whoever writes them too early, or reads
 * the sums before, finds something else than it should. Operands in registers are taken when it starts. */
#include "ptx_code.h"

namespace emulator {
namespace ptx {

enum { DEPTH = 16, ROWS = 16, MOST_COLUMNS = 256, SUMS = MOST_COLUMNS / 2 /* of a lane */, A_REGISTERS = 4 };

typedef float (*widening)(uint16_t);

/* As the text of a statement has it. */
struct wgmma {
    int columns;
    bool a_shared, a_across, b_across, adds;
    uint64_t a, b;
    widening widen;
};

} // namespace ptx

struct product {
    ptx::wgmma what;
    int lanes; /* that have come to it */
    bool done;
    int group; /* how many groups had been committed before */
    float *sums[WARP][ptx::SUMS];
    uint32_t a[WARP][ptx::A_REGISTERS];
};

namespace ptx {

/* ---- operands in shared memory ----------------------------------------------------------------------------------- */

static void check_descriptor(uint64_t descriptor) {
    if (descriptor >> 62 != 1 || descriptor >> 49 & 7) fail("a descriptor %llx", (unsigned long long)descriptor);
}

/* Where element (row, depth) of an operand is. across: the depth is down the rows of panels. */
static uint32_t place_of(uint64_t descriptor, bool across, int row, int depth) {
    uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4, leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
             stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    uint32_t along = across ? (uint32_t)row : (uint32_t)depth, down = across ? (uint32_t)depth : (uint32_t)row;
    uint32_t at = start + (across ? along / 64 * leading : 0) + down / 8 * stride + down % 8 * 128 + along % 64 * 2;
    return at ^ (at >> 7 & 7) << 4;
}

enum { TOGETHER = 8 /* elements of 16 bytes, which the swizzle leaves together */ };

/* [DEPTH, rows] of an operand, from row `row0` on. */
template <int MOST>
static void read_operand(block *of, uint64_t descriptor, bool across, int row0, int rows, widening widen,
                         float (&to)[DEPTH][MOST]) {
    uint16_t x[TOGETHER];
    for (int row = 0; row < rows; row += across ? TOGETHER : 1)
        for (int depth = 0; depth < DEPTH; depth += across ? 1 : TOGETHER) {
            memcpy(x, place_in(of, place_of(descriptor, across, row0 + row, depth), sizeof x), sizeof x);
            for (int e = 0; e < TOGETHER; e++) (across ? to[depth][row + e] : to[depth + e][row]) = widen(x[e]);
        }
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

/* a of a warp, its depth first. */
static void read_rows(const warp &of, const product &p, float (&a)[DEPTH][ROWS]) {
    if (p.what.a_shared) {
        read_operand(of.of, p.what.a, p.what.a_across, of.number % 4 * ROWS, ROWS, p.what.widen, a);
        return;
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int n = 0; n < A_REGISTERS; n++)
            for (int e = 0; e < 2; e++)
                a[n / 2 * 8 + lane % 4 * 2 + e][lane / 4 + n % 2 * 8] =
                    p.what.widen((uint16_t)(p.a[lane][n] >> 16 * e));
}

static void multiply(const warp &of, const product &p) {
    float a[DEPTH][ROWS], b[DEPTH][MOST_COLUMNS], d[ROWS][MOST_COLUMNS];
    int columns = p.what.columns;
    read_rows(of, p, a);
    read_operand(of.of, p.what.b, p.what.b_across, 0, columns, p.what.widen, b);
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < columns; column++) d[row][column] = 0;
        for (int depth = 0; depth < DEPTH; depth++)
            for (int column = 0; column < columns; column++) d[row][column] += a[depth][row] * b[depth][column];
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int n = 0; n < columns / 2; n++) {
            float *sum = p.sums[lane][n], x = d[lane / 4 + n % 4 / 2 * 8][n / 4 * 8 + lane % 4 * 2 + n % 2];
            *sum = p.what.adds ? *sum + x : x;
        }
}

static const char *const waits_for_products = "products";

/* The first of the warp's that is to be done. */
static void do_next(warp *of) {
    for (const auto &p : of->products) {
        if (p->done) continue;
        if (p->lanes < WARP) return;
        multiply(*of, *p);
        p->done = true;
        for (thread *t : of->lanes)
            if (t->waits_for == waits_for_products) wake(t);
        return;
    }
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* {d}, {a} or descriptor, descriptor, adds, 1, 1[, a across], b across */
static wgmma wgmma_of(const frame &f, const instruction &i) {
    wgmma w = {};
    size_t last = i.parts.size() - 1;
    w.columns = (int)i.parts[0].size() * 2;
    w.a_shared = i.parts[1].size() == 1;
    w.b_across = f.get(i, last);
    w.a_across = w.a_shared && f.get(i, last - 1);
    w.adds = f.get(i, 3);
    w.a = w.a_shared ? f.get(i, 1) : 0;
    w.b = f.get(i, 2);
    w.widen = i.name.find("bf16") != std::string::npos ? bf16_value : f16_value;
    if (w.a_shared) check_descriptor(w.a);
    check_descriptor(w.b);
    return w;
}

/* The first lane that comes to a product makes it, the others find it. */
static product *product_of_self(const frame &f, const instruction &i) {
    thread_state &t = state_of(self);
    size_t at = (size_t)(t.products++ - t.in->first_product);
    if (at < t.in->products.size()) return t.in->products[at].get();
    std::shared_ptr<product> made(new product);
    made->what = wgmma_of(f, i);
    made->lanes = 0;
    made->done = false;
    made->group = t.committed;
    t.in->products.push_back(made);
    return made.get();
}

static void start_product(frame &f, const instruction &i) {
    warp *of = self->in;
    product *p = product_of_self(f, i);
    for (size_t n = 0; n < i.parts[0].size(); n++) p->sums[self->lane][n] = (float *)f.operands[i.parts[0][n].index].to;
    for (size_t n = 0; !p->what.a_shared && n < A_REGISTERS; n++) p->a[self->lane][n] = (uint32_t)f.get(i, 1, n);
    if (++p->lanes == WARP) put_on_list(PRODUCT, [of] { do_next(of); });
}

static void commit_products(frame &, const instruction &) {
    state_of(self).committed++;
}

static bool is_under_way(const warp &of, int groups) {
    for (const auto &p : of.products)
        if (!p->done && p->group < groups) return true;
    return false;
}

/* Until at most `left` groups are under way. */
static void wait_for_products(frame &f, const instruction &i) {
    thread_state &t = state_of(self);
    while (is_under_way(*t.in, t.committed - (int)f.get(i, 0))) sleep(waits_for_products);
    meet(~0u, "wgmma.wait_group", nullptr, [&](auto &) {
        while (!t.in->products.empty() && t.in->products.front()->done) {
            t.in->products.pop_front();
            t.in->first_product++;
        }
    });
}

static void fence(frame &, const instruction &) {
}

const known wgmma_instructions[] = {
    {"wgmma.mma_async.sync.aligned", start_product}, {"wgmma.fence", fence}, {"wgmma.commit_group", commit_products},
    {"wgmma.wait_group", wait_for_products},         {NULL, NULL},
};

} // namespace ptx
} // namespace emulator
