#include "exec/slot_memory.h"

#include "base/status.h"

ra_status ra_slot_memory_start(ra_pool *pool, const ra_program *program, const ra_sharing *sharing,
                               ra_slot_memory *at) {
    for (int c = 0; c < RA_CARGO_COUNT; c++) {
        int64_t count = program->schedule->slots[c].count;
        at->shared[c] = ra_sharing_has(sharing, program->schedule, (ra_cargo)c);
        at->slots[c] = ra_pool_take(pool, count, sizeof *at->slots[c]);
        if (!at->slots[c]) return ra_no_memory();
        for (int64_t i = 0; i < count; i++) at->slots[c][i] = ra_program_slot(program, (ra_cargo)c, (int)i);
    }
    return RA_OK;
}

static unsigned char *memory_of_source(const ra_program *program, const ra_sharing *sharing, const ra_transfer *t) {
    size_t bytes = ra_cargo_bytes(&program->setup->problem, t->cargo);
    return sharing->lenders[t->source.rank].slots[t->cargo][t->source.slot] + (size_t)t->source.offset * bytes;
}

void ra_slot_memory_pack(const ra_program *program, const ra_sharing *sharing, const ra_step *step,
                         ra_slot_memory *at) {
    for (int64_t i = 0; i < step->pack_count; i++) {
        const ra_pack *pack = &step->packs[i];
        at->slots[pack->cargo][pack->slot] = ra_program_slot(program, pack->cargo, pack->slot);
    }
    if (program->schedule->pass != RA_BACKWARD) return;
    for (int64_t i = 0; i < step->compute_count; i++) {
        const ra_transfer *sum = at->shared[RA_CARGO_GRAD] ? ra_step_sum_of(step, &step->computes[i]) : NULL;
        int slot = step->computes[i].grad_slot;
        if (slot != RA_OWN)
            at->slots[RA_CARGO_GRAD][slot] =
                sum ? memory_of_source(program, sharing, sum) : ra_program_slot(program, RA_CARGO_GRAD, slot);
    }
}

void ra_slot_memory_receive(const ra_program *program, const ra_sharing *sharing, const ra_step *step,
                            ra_slot_memory *at) {
    for (int64_t i = 0; i < step->transfer_count; i++) {
        const ra_transfer *t = &step->transfers[i];
        if (!t->is_send)
            at->slots[t->cargo][t->slot] = at->shared[t->cargo] ? memory_of_source(program, sharing, t)
                                                                : ra_program_slot(program, t->cargo, t->slot);
    }
}
