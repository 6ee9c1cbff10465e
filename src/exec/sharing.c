#include "exec/sharing.h"

#include "base/status.h"
#include "exec/adds_once.h"
#include "exec/keys_stay.h"
#include "exec/step_messages.h"
#include "plan/digest.h"
#include "transport/collective.h"

#include <stdlib.h>
#include <string.h>

/* What a rank has that all must have alike. Plain bytes that travel, inside one process, as an offer's. */
typedef struct having {
    const ra_device *device;
    int64_t workspace;
} having;

/* What a rank tells the others. */
typedef struct offer {
    ra_seal seal; /* ranks that have not planned the same do not share: that they differ is found later */
    int64_t sums, in_place, stays[2];
    int64_t packs_once, messages; /* forward: nothing is packed behind the first step; how many it receives */
    ra_lender lender;
} offer;

/* ---- what kernels add -------------------------------------------------------------------------------------------- */

/* Whether every row of dk and dv is added to once in a compute, by a kernel that rounds what it adds: then a sum has
 * the same bits whether the compute adds to it or is added to it afterwards. */
static int adds_once(const ra_setup *setup, const ra_schedule *schedule) {
    if (!setup->kernel->overwrites) return 0;
    for (int s = 0; s < schedule->step_count; s++)
        for (int64_t i = 0; i < schedule->steps[s].compute_count; i++)
            if (!ra_adds_once(&schedule->steps[s].computes[i].tiles)) return 0;
    return 1;
}

/* ---- keys where callers have them -------------------------------------------------------------------------------- */

/* Whether all parts that are received are pieces, which are rows and heads of a view, and no more than can come with
 * calls. */
static int has_few_pieces(const ra_schedule *schedule) {
    int64_t parts = 0;
    for (int s = 0; s < schedule->step_count; s++)
        for (int64_t i = 0; i < schedule->steps[s].compute_count; i++) {
            const ra_compute *c = &schedule->steps[s].computes[i];
            if (c->kv_slot == RA_OWN) continue;
            parts += c->part_count;
            for (int64_t n = 0; n < c->part_count; n++)
                if (c->parts[n] == RA_ALL_RECORDS) return 0;
        }
    return parts <= RA_PARTS_IN_PLACE;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Whether all that others use of this rank is there when the first step has been packed. */
static int packs_once(const ra_schedule *schedule) {
    for (int s = 1; s < schedule->step_count; s++)
        if (schedule->steps[s].pack_count > 0) return 0;
    return 1;
}

static int64_t messages_received(const ra_schedule *schedule) {
    int64_t count = 0;
    for (int s = 0; s < schedule->step_count; s++)
        for (int64_t i = 0; i < schedule->steps[s].transfer_count; i++)
            count += !schedule->steps[s].transfers[i].is_send;
    return count;
}

/* ---- telling the others ------------------------------------------------------------------------------------------ */

static ra_lender lender_of(const ra_prediction *prediction, unsigned char *memory) {
    ra_lender lender = {0};
    const ra_schedule *passes[] = {&prediction->forward, &prediction->backward};
    for (int p = 0; p < 1 + prediction->setup.backward; p++)
        for (int c = 0; c < RA_CARGO_COUNT; c++)
            for (int64_t i = 0; i < passes[p]->slots[c].count && i < RA_SOURCE_SLOTS; i++)
                lender.slots[c][i] = memory + prediction->workspace.slots[c][i];
    return lender;
}

/* A ra_judge: all is having [ranks], the answer an ra_common. */
static void judge_common(const void *all, int ranks, void *answer_out) {
    const having *ranks_have = all;
    ra_common *answer = answer_out;
    const ra_device *device = ranks_have[0].device;
    answer->one_device = device && ra_device_is_asynchronous(device);
    answer->no_workspace = 1;
    for (int r = 0; r < ranks; r++) {
        answer->one_device &= ranks_have[r].device == device;
        answer->no_workspace &= !ranks_have[r].workspace;
    }
}

ra_status ra_sharing_find(ra_comm *comm, const ra_device *device, int has_workspace, double timeout_seconds,
                          ra_common *common_out) {
    having mine = {device, has_workspace};
    return ra_comm_judge(comm, &mine, sizeof mine, judge_common, common_out, sizeof *common_out, timeout_seconds);
}

static ra_seal seal_of(const ra_prediction *prediction) {
    ra_digest digest = ra_digest_of(&prediction->setup);
    return ra_digest_seal(&digest);
}

static offer offer_of(const ra_prediction *prediction, unsigned char *memory, ra_lent_rows *rows,
                      const ra_staying *staying) {
    offer mine;
    memset(&mine, 0, sizeof mine);
    mine.seal.status = RA_ERR_INTERNAL; /* nothing that anybody would share */
    if (!prediction) return mine;
    mine.seal = seal_of(prediction);
    mine.in_place =
        has_few_pieces(&prediction->forward) && (!prediction->setup.backward || has_few_pieces(&prediction->backward));
    mine.packs_once = packs_once(&prediction->forward);
    mine.messages = messages_received(&prediction->forward);
    mine.sums = prediction->setup.backward && adds_once(&prediction->setup, &prediction->backward);
    mine.lender = lender_of(prediction, memory);
    mine.lender.rows = rows;
    for (int pass = 0; pass < 2; pass++) mine.stays[pass] = staying->can[pass];
    return mine;
}

/* Whether all have planned the same, none having failed. */
static int are_alike(const offer *offers, int ranks) {
    int alike = offers[0].seal.status == RA_OK;
    for (int r = 1; r < ranks; r++) alike &= !memcmp(&offers[r].seal, &offers[0].seal, sizeof offers[r].seal);
    return alike;
}

/* What all ranks' offers come to; staying: what this rank does where keys stay. */
static void conclude(const offer *offers, int ranks, ra_lender *lenders, const ra_staying *staying,
                     ra_sharing *sharing_out) {
    int all_stay[2] = {1, 1};
    int64_t messages = 0;
    if (!are_alike(offers, ranks)) return;
    *sharing_out = (ra_sharing){.lenders = lenders, .sums = 1, .in_place = 1, .opens = 1};
    for (int r = 0; r < ranks; r++) {
        lenders[r] = offers[r].lender;
        sharing_out->sums &= offers[r].sums != 0;
        sharing_out->in_place &= offers[r].in_place != 0;
        sharing_out->opens &= offers[r].packs_once != 0;
        if (offers[r].messages > messages) messages = offers[r].messages;
        for (int pass = 0; pass < 2; pass++) all_stay[pass] &= offers[r].stays[pass] != 0;
    }
    sharing_out->opens &= messages > ra_rounds_of(ranks);
    for (int pass = 0; pass < 2; pass++) sharing_out->stays[pass] = all_stay[pass] ? &staying->passes[pass] : NULL;
}

ra_status ra_sharing_arrange(ra_pool *pool, ra_comm *comm, const ra_prediction *prediction, unsigned char *memory,
                             double timeout_seconds, ra_sharing *sharing_out) {
    int ranks = ra_comm_ranks(comm);
    *sharing_out = (ra_sharing){0};
    offer *offers = calloc((size_t)ranks, sizeof *offers);
    ra_lender *lenders = ra_pool_take(pool, ranks, sizeof *lenders);
    ra_lent_rows *rows = ra_pool_take(pool, 1, sizeof *rows);
    ra_staying *staying = ra_pool_take(pool, 1, sizeof *staying);
    ra_status status = RA_OK;
    if (!offers || !lenders || !rows || !staying) status = ra_comm_lose(comm, ra_no_memory());
    if (status == RA_OK) {
        if (prediction) ra_keys_stay(pool, prediction, staying);
        offer mine = offer_of(prediction, memory, rows, staying);
        status = ra_comm_allgather(comm, &mine, sizeof mine, offers, timeout_seconds);
    }
    if (status == RA_OK) {
        conclude(offers, ranks, lenders, staying, sharing_out);
        sharing_out->rows = rows;
    }
    free(offers);
    return status;
}

int ra_sharing_has(const ra_sharing *sharing, const ra_schedule *schedule, ra_cargo cargo) {
    return sharing->lenders && (cargo != RA_CARGO_GRAD || sharing->sums) && ra_schedule_has_sources(schedule, cargo);
}
