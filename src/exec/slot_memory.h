/* Where what each slot holds is, as the steps of a program go by: in the rank's own memory, or in another rank's where
 * it is not copied (sharing.h). Used while a program is bound. */
#ifndef RA_EXEC_SLOT_MEMORY_H
#define RA_EXEC_SLOT_MEMORY_H

#include "exec/program.h"

typedef struct ra_slot_memory {
    unsigned char **slots[RA_CARGO_COUNT];
    int shared[RA_CARGO_COUNT]; /* what is received of this cargo is used where it is */
} ra_slot_memory;

/* Before the first step: every slot is the rank's own. */
ra_status ra_slot_memory_start(ra_pool *pool, const ra_program *program, const ra_sharing *sharing, ra_slot_memory *at);

/* Before a step's computes: packs are in the rank's own memory, and so are gradients, unless they are added to a sum.
 */
void ra_slot_memory_pack(const ra_program *program, const ra_sharing *sharing, const ra_step *step, ra_slot_memory *at);

/* When its messages have come. */
void ra_slot_memory_receive(const ra_program *program, const ra_sharing *sharing, const ra_step *step,
                            ra_slot_memory *at);

#endif
