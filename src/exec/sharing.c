#include "exec/sharing.h"

#include "base/status.h"
#include "plan/digest.h"

#include <string.h>

/* What a rank tells the others. Plain bytes that travel, inside one process. */
typedef struct offer {
    ra_seal seal; /* ranks that have not planned the same do not share: that they differ is found later */
    const ra_device *device;
    int64_t sums;
    ra_lender lender;
} offer;

/* Whether every row of dk and dv is added to once in a compute (kernel.h, overwrites): then a sum has the same bits
 * whether the compute adds to it or is added to it afterwards. */
static int adds_once(const ra_setup *setup, const ra_schedule *schedule) {
    if (!setup->kernel->overwrites) return 0;
    for (int s = 0; s < schedule->step_count; s++)
        for (int64_t i = 0; i < schedule->steps[s].compute_count; i++)
            if (schedule->steps[s].computes[i].tiles.round_count > 1) return 0;
    return 1;
}

static ra_lender lender_of(const ra_prediction *prediction, unsigned char *memory) {
    ra_lender lender = {0};
    const ra_schedule *passes[] = {&prediction->forward, &prediction->backward};
    for (int p = 0; p < 1 + prediction->setup.backward; p++)
        for (int c = 0; c < RA_CARGO_COUNT; c++)
            for (int64_t i = 0; i < passes[p]->slots[c].count && i < RA_SOURCE_SLOTS; i++)
                lender.slots[c][i] = memory + prediction->workspace.slots[c][i];
    return lender;
}

static offer offer_of(const ra_prediction *prediction, unsigned char *memory) {
    offer mine;
    memset(&mine, 0, sizeof mine);
    mine.seal.status = RA_ERR_INTERNAL; /* nothing that anybody would share */
    if (!prediction) return mine;
    const ra_setup *setup = &prediction->setup;
    ra_digest digest = ra_digest_of(setup);
    mine.seal = ra_digest_seal(&digest);
    mine.device = setup->device;
    mine.sums = setup->backward && adds_once(setup, &prediction->backward);
    mine.lender = lender_of(prediction, memory);
    return mine;
}

/* Whether all have planned the same on the same device, which must be one that does its work later (comm.h). */
static int all_share(const offer *offers, int ranks) {
    if (offers[0].seal.status != RA_OK || !ra_device_is_asynchronous(offers[0].device)) return 0;
    for (int r = 1; r < ranks; r++)
        if (memcmp(&offers[r].seal, &offers[0].seal, sizeof offers[r].seal) != 0 ||
            offers[r].device != offers[0].device)
            return 0;
    return 1;
}

ra_status ra_sharing_arrange(ra_pool *pool, ra_comm *comm, const ra_prediction *prediction, unsigned char *memory,
                             double timeout_seconds, ra_sharing *sharing_out) {
    int ranks = ra_comm_ranks(comm);
    offer mine = offer_of(prediction, memory);
    offer *offers = ra_pool_take(pool, ranks, sizeof *offers);
    ra_lender *lenders = ra_pool_take(pool, ranks, sizeof *lenders);
    *sharing_out = (ra_sharing){0};
    if (!offers || !lenders) return ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no memory for a plan"));
    RA_TRY(ra_comm_allgather(comm, &mine, sizeof mine, offers, timeout_seconds));
    if (!all_share(offers, ranks)) return RA_OK;
    sharing_out->lenders = lenders;
    sharing_out->sums = 1;
    for (int r = 0; r < ranks; r++) {
        lenders[r] = offers[r].lender;
        sharing_out->sums &= offers[r].sums != 0;
    }
    return RA_OK;
}

int ra_sharing_has(const ra_sharing *sharing, const ra_schedule *schedule, ra_cargo cargo) {
    return sharing->lenders && (cargo != RA_CARGO_GRAD || sharing->sums) && ra_schedule_has_sources(schedule, cargo);
}
