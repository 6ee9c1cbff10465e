#include "schedule/builder.h"

int ra_rank_along(const ra_builder *b, int rank, int steps) {
    int r = (rank + steps) % b->ranks;
    return r < 0 ? r + b->ranks : r;
}

static ra_status reserve(ra_builder *b, ra_cargo cargo, int slot, int64_t elements) {
    ra_slots *slots = &b->schedule->slots[cargo];
    if (slot == RA_OWN) return RA_OK;
    while (slots->count <= slot)
        if (!ra_pool_append(b->pool, &slots->elements, &slots->count, &slots->capacity, sizeof *slots->elements))
            return ra_no_memory();
    if (slots->elements[slot] < elements) slots->elements[slot] = elements;
    return RA_OK;
}

/* The same pieces in memory that the schedule keeps: routes, of which a rank uses some pieces, are made in scratch. */
static ra_status keep(ra_builder *b, const ra_parcel *parcel, ra_parcel *kept_out) {
    ra_piece *pieces = ra_pool_take(b->pool, parcel->piece_count, sizeof *pieces);
    if (!pieces) return ra_no_memory();
    for (int64_t i = 0; i < parcel->piece_count; i++) pieces[i] = parcel->pieces[i];
    *kept_out = *parcel;
    kept_out->pieces = pieces;
    return RA_OK;
}

/* Elements of a parcel as that cargo. */
static int64_t elements_as(const ra_builder *b, ra_cargo cargo, const ra_parcel *parcel) {
    return ra_parcel_records(parcel, parcel->piece_count) * ra_cargo_record(b->cut->problem, cargo, b->pass);
}

ra_status ra_add_pack(ra_builder *b, int step, ra_cargo cargo, int slot, const ra_parcel *parcel) {
    if (parcel->elements == 0) return RA_OK;
    ra_step *s = &b->schedule->steps[step];
    ra_pack *pack = ra_pool_append(b->pool, &s->packs, &s->pack_count, &s->pack_capacity, sizeof *pack);
    if (!pack) return ra_no_memory();
    pack->cargo = cargo;
    pack->slot = slot;
    RA_TRY(keep(b, parcel, &pack->parcel));
    return reserve(b, cargo, slot, elements_as(b, cargo, parcel));
}

static ra_status add_transfer(ra_builder *b, int step, ra_transfer transfer) {
    if (transfer.elements == 0) return RA_OK;
    ra_step *s = &b->schedule->steps[step];
    /* Messages between two ranks are told apart by step and cargo and, beyond that, by their order, which is the same
     * at both ends. */
    transfer.tag = RA_CARGO_TAGS * step + (int)transfer.cargo;
    ra_transfer *item = ra_pool_append(b->pool, &s->transfers, &s->transfer_count, &s->transfer_capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = transfer;
    return reserve(b, transfer.cargo, transfer.slot, transfer.offset + transfer.elements);
}

ra_status ra_add_send(ra_builder *b, int step, int peer, ra_cargo cargo, int slot, int64_t offset, int64_t elements) {
    return add_transfer(b, step,
                        (ra_transfer){.peer = peer,
                                      .is_send = 1,
                                      .cargo = cargo,
                                      .slot = slot,
                                      .offset = offset,
                                      .elements = elements,
                                      .source = RA_COPIED});
}

ra_status ra_add_recv(ra_builder *b, int step, int peer, ra_cargo cargo, int slot, int64_t elements, ra_source source) {
    return add_transfer(
        b, step, (ra_transfer){.peer = peer, .cargo = cargo, .slot = slot, .elements = elements, .source = source});
}

ra_source ra_sums_of(const ra_builder *b, int owner, int64_t offset) {
    return (ra_source){ra_rank_along(b, owner, 1), 1, offset};
}

ra_status ra_add_reduce(ra_builder *b, int step, ra_cargo cargo, int to, int from, const ra_parcel *parcel) {
    if (parcel->elements == 0) return RA_OK;
    ra_step *s = &b->schedule->steps[step];
    ra_reduce *reduce = ra_pool_append(b->pool, &s->reduces, &s->reduce_count, &s->reduce_capacity, sizeof *reduce);
    if (!reduce) return ra_no_memory();
    *reduce = (ra_reduce){.cargo = cargo, .to = to, .from = from};
    RA_TRY(keep(b, parcel, &reduce->parcel));
    RA_TRY(reserve(b, cargo, to, elements_as(b, cargo, parcel)));
    return reserve(b, cargo, from, elements_as(b, cargo, parcel));
}

static ra_status append_compute(ra_builder *b, int step, const ra_compute *compute) {
    ra_step *s = &b->schedule->steps[step];
    ra_compute *item = ra_pool_append(b->pool, &s->computes, &s->compute_count, &s->compute_capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = *compute;
    b->schedule->pairs += compute->pairs;
    return RA_OK;
}

/* ---- computes ---------------------------------------------------------------------------------------------------- */

/* Whether both compute the same queries with the same keys, so that they have the same tiles. */
static int same_work(const ra_compute *x, const ra_compute *y) {
    return x->visit.owner == y->visit.owner && (x->visit.slot == RA_OWN) == (y->visit.slot == RA_OWN) &&
           ra_span_same(x->visit.rows, y->visit.rows) && (x->kv_slot == RA_OWN) == (y->kv_slot == RA_OWN) &&
           ra_parcel_is(&x->parcel, &y->parcel);
}

/* Both passes compute in the same order, so if the other pass has the compute at all, it is the next one. */
static const ra_compute *find_compute(ra_findings *findings, const ra_compute *like) {
    if (findings->next == findings->compute_count) return NULL;
    const ra_compute *next = &findings->computes[findings->next];
    if (!same_work(next, like)) return NULL;
    findings->next++;
    return next;
}

/* Fills in the parcel, which is the schedule's from here on, and the tiles: those of the other pass where it has done
 * the same. */
static ra_status find_tiles(ra_builder *b, const ra_parcel *parcel, ra_compute *compute) {
    compute->parcel = *parcel;
    const ra_compute *found = find_compute(b->findings, compute);
    if (found) {
        compute->parcel = found->parcel;
        compute->tiles = found->tiles;
        compute->parts = found->parts;
        compute->part_count = found->part_count;
        compute->pairs = found->pairs;
        return RA_OK;
    }
    RA_TRY(keep(b, parcel, &compute->parcel));
    RA_TRY(ra_tiles_make(b, compute));
    ra_findings *f = b->findings;
    ra_compute *item = ra_pool_append(b->scratch, &f->computes, &f->compute_count, &f->compute_capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = *compute;
    f->next = f->compute_count;
    return RA_OK;
}

ra_status ra_add_compute(ra_builder *b, int step, int kv_slot, int grad_slot, const ra_parcel *parcel) {
    if (parcel->elements == 0) return RA_OK;
    ra_compute compute = {.visit = {.slot = RA_OWN, .owner = b->rank}, .kv_slot = kv_slot, .grad_slot = grad_slot};
    RA_TRY(find_tiles(b, parcel, &compute));
    if (compute.tiles.tile_count == 0 && (b->pass == RA_FORWARD || grad_slot == RA_OWN)) return RA_OK;
    RA_TRY(append_compute(b, step, &compute));
    RA_TRY(reserve(b, RA_CARGO_KV, kv_slot, parcel->elements));
    return b->pass == RA_FORWARD ? RA_OK : reserve(b, RA_CARGO_GRAD, grad_slot, parcel->elements);
}

ra_status ra_add_compute_own(ra_builder *b, int step) {
    ra_parcel own;
    RA_TRY(ra_parcel_whole(b, b->rank, &own));
    return ra_add_compute(b, step, RA_OWN, RA_OWN, &own);
}

ra_status ra_add_visits(ra_builder *b, int step, int query_slot, int result_slot, const ra_parcel *parcel) {
    ra_cargo result = b->pass == RA_FORWARD ? RA_CARGO_STATE : RA_CARGO_DQ;
    ra_parcel own;
    if (parcel->elements == 0) return RA_OK;
    RA_TRY(ra_parcel_whole(b, b->rank, &own));
    for (int64_t i = 0; i < parcel->piece_count; i++) {
        ra_compute compute = {.kv_slot = RA_OWN, .grad_slot = RA_OWN};
        compute.visit =
            (ra_visit){query_slot, result_slot, parcel->owner, parcel->pieces[i].rows, ra_parcel_records(parcel, i)};
        RA_TRY(find_tiles(b, &own, &compute));
        RA_TRY(append_compute(b, step, &compute));
    }
    return reserve(b, result, result_slot, elements_as(b, result, parcel));
}
