/* Proving that the schedules of all ranks fit together, without running them. */
#include "base/status.h"
#include "schedule/schedule.h"

typedef struct where {
    int rank, step;
} where;

static ra_status fault(where at, const char *what) {
    return ra_fail(RA_ERR_INTERNAL, "rank %d, step %d: %s", at.rank, at.step, what);
}

/* The next transfer from index *i on with that peer and direction; NULL when there is none. */
static const ra_transfer *next_transfer(const ra_step *step, int peer, int is_send, int64_t *i) {
    for (; *i < step->transfer_count; (*i)++)
        if (step->transfers[*i].peer == peer && step->transfers[*i].is_send == is_send) return &step->transfers[(*i)++];
    return NULL;
}

/* What `from` sends to `to` in this step is what `to` expects from it, in the same order. */
static ra_status check_messages(const ra_step *from, const ra_step *to, where sender, int receiver) {
    int64_t i = 0, j = 0;
    for (;;) {
        const ra_transfer *sent = next_transfer(from, receiver, 1, &i);
        const ra_transfer *expected = next_transfer(to, sender.rank, 0, &j);
        if (!sent && !expected) return RA_OK;
        if (!sent || !expected) return fault(sender, "a message is posted at one end only");
        if (sent->elements != expected->elements || sent->cargo != expected->cargo || sent->tag != expected->tag)
            return fault(sender, "the two ends of a message differ");
    }
}

static int is_slot(ra_cargo a, int slot_a, ra_cargo b, int slot_b) {
    return a == b && slot_a == slot_b && slot_a != RA_OWN;
}

/* While messages are in flight nobody touches what is received into, nobody writes what is sent from. */
static ra_status check_transfer_slot(const ra_step *step, int64_t i, where at) {
    const ra_transfer *t = &step->transfers[i];
    for (int64_t j = 0; j < step->transfer_count; j++)
        if (j != i && !t->is_send && is_slot(t->cargo, t->slot, step->transfers[j].cargo, step->transfers[j].slot))
            return fault(at, "a slot is received into and used by another message at once");
    for (int64_t j = 0; j < step->compute_count; j++) {
        const ra_compute *c = &step->computes[j];
        int reads = is_slot(t->cargo, t->slot, RA_CARGO_KV, c->kv_slot) ||
                    is_slot(t->cargo, t->slot, RA_CARGO_QUERY, c->visit.slot) ||
                    is_slot(t->cargo, t->slot, RA_CARGO_STATS, c->visit.slot);
        int writes = is_slot(t->cargo, t->slot, RA_CARGO_GRAD, c->grad_slot) ||
                     (c->visit.slot != RA_OWN && (is_slot(t->cargo, t->slot, RA_CARGO_STATE, c->visit.result) ||
                                                  is_slot(t->cargo, t->slot, RA_CARGO_DQ, c->visit.result)));
        if (!t->is_send && reads) return fault(at, "a slot is received into and computed with at once");
        if (writes) return fault(at, "a slot travels and is computed into at once");
    }
    for (int64_t j = 0; j < step->pack_count; j++)
        if (!t->is_send && is_slot(t->cargo, t->slot, step->packs[j].cargo, step->packs[j].slot))
            return fault(at, "a slot is received into and packed into at once");
    return RA_OK;
}

static ra_status check_sizes(const ra_schedule *schedule, const ra_step *step, where at) {
    for (int64_t i = 0; i < step->transfer_count; i++) {
        const ra_transfer *t = &step->transfers[i];
        const ra_slots *slots = &schedule->slots[t->cargo];
        if (t->elements <= 0) return fault(at, "a message is empty");
        if (t->slot < 0 || t->slot >= slots->count || t->offset + t->elements > slots->elements[t->slot])
            return fault(at, "a message reaches beyond its slot");
        if (t->peer < 0 || t->peer >= schedule->ranks || t->peer == schedule->rank)
            return fault(at, "a message has no other end");
    }
    for (int64_t i = 0; i < step->compute_count; i++) {
        const ra_compute *c = &step->computes[i];
        const ra_slots *kv = &schedule->slots[RA_CARGO_KV];
        if (c->kv_slot != RA_OWN && (c->kv_slot >= kv->count || c->parcel.elements > kv->elements[c->kv_slot]))
            return fault(at, "a parcel is larger than its slot");
    }
    return RA_OK;
}

/* ---- what slots hold -------------------------------------------------------------------------------------------- */

/* Rows of that owner, so many (row, head) records of them from the slot's start on; none: records 0. place: where they
 * are when nothing is copied that has a source. */
typedef struct content {
    int owner;
    int64_t records;
    ra_source place;
} content;

/* A rank's slots, and what is on its way into them. */
typedef struct holdings {
    content *now[RA_CARGO_COUNT], *next[RA_CARGO_COUNT];
} holdings;

static int holds(const content *c, int owner, int64_t records) {
    return c->owner == owner && c->records >= records;
}

static int64_t records_of(const ra_parcel *parcel) {
    return ra_parcel_records(parcel, parcel->piece_count);
}

static void copy_contents(const ra_schedule *schedule, content *const *from, content *const *to) {
    for (int c = 0; c < RA_CARGO_COUNT; c++)
        for (int64_t i = 0; i < schedule->slots[c].count; i++) to[c][i] = from[c][i];
}

static void pack_all(const ra_schedule *schedules, holdings *all, int ranks, int s) {
    for (int r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < schedules[r].steps[s].pack_count; i++) {
            const ra_pack *pack = &schedules[r].steps[s].packs[i];
            all[r].now[pack->cargo][pack->slot] = (content){r, records_of(&pack->parcel), {r, pack->slot, 0}};
        }
        copy_contents(&schedules[r], all[r].now, all[r].next);
    }
}

/* What `from` sends to `to` is there, and will be in the slot where it is received. */
static ra_status carry(const ra_problem *problem, const ra_schedule *from, const ra_schedule *to, holdings *all,
                       int s) {
    int64_t i = 0, j = 0;
    const ra_transfer *sent, *expected;
    while ((sent = next_transfer(&from->steps[s], to->rank, 1, &i)) != NULL) {
        expected = next_transfer(&to->steps[s], from->rank, 0, &j);
        const content *have = &all[from->rank].now[sent->cargo][sent->slot];
        int64_t record = ra_cargo_record(problem, sent->cargo, from->pass);
        if (sent->offset + sent->elements > have->records * record)
            return fault((where){from->rank, s}, "what is sent is not in its slot");
        const ra_source *source = &expected->source;
        if (ra_schedule_has_sources(to, sent->cargo) &&
            !(source->rank == have->place.rank && source->slot == have->place.slot &&
              source->offset == have->place.offset + sent->offset))
            return fault((where){to->rank, s}, "what is received is not where its source says");
        all[to->rank].next[expected->cargo][expected->slot] =
            (content){have->owner, expected->elements / record, *source};
    }
    return RA_OK;
}

/* The visitors' queries are there with what belongs to them, and what they become will be in its slot. */
static ra_status check_visit(const ra_schedule *schedule, const ra_visit *visit, int64_t heads_q, holdings *h, int s) {
    int64_t records = visit->records + visit->rows.count * heads_q;
    int backward = schedule->pass == RA_BACKWARD;
    if (!holds(&h->now[RA_CARGO_QUERY][visit->slot], visit->owner, records) ||
        (backward && !holds(&h->now[RA_CARGO_STATS][visit->slot], visit->owner, records)))
        return fault((where){schedule->rank, s}, "the queries that are computed with are not in their slot");
    h->next[backward ? RA_CARGO_DQ : RA_CARGO_STATE][visit->result] =
        (content){visit->owner, records, {schedule->rank, visit->result, 0}};
    return RA_OK;
}

static ra_status check_computes(const ra_problem *problem, const ra_schedule *schedule, holdings *h, int s) {
    const ra_step *step = &schedule->steps[s];
    for (int64_t i = 0; i < step->compute_count; i++) {
        const ra_compute *c = &step->computes[i];
        const ra_transfer *sum = ra_step_sum_of(step, c);
        content made = {c->parcel.owner, records_of(&c->parcel), {schedule->rank, c->grad_slot, 0}};
        if (sum && ra_schedule_has_sources(schedule, RA_CARGO_GRAD)) made.place = sum->source;
        if (c->kv_slot != RA_OWN && !holds(&h->now[RA_CARGO_KV][c->kv_slot], made.owner, made.records))
            return fault((where){schedule->rank, s}, "what is computed with is not in its slot");
        if (c->visit.slot != RA_OWN) RA_TRY(check_visit(schedule, &c->visit, problem->heads_q, h, s));
        if (schedule->pass == RA_BACKWARD && c->grad_slot != RA_OWN) h->next[RA_CARGO_GRAD][c->grad_slot] = made;
    }
    return RA_OK;
}

static ra_status check_reduces(const ra_schedule *schedule, const holdings *h, int s) {
    const ra_step *step = &schedule->steps[s];
    for (int64_t i = 0; i < step->reduce_count; i++) {
        const ra_reduce *r = &step->reduces[i];
        int owner = r->to == RA_OWN ? schedule->rank : h->now[r->cargo][r->to].owner;
        if (!holds(&h->now[r->cargo][r->from], r->parcel.owner, records_of(&r->parcel)) || owner != r->parcel.owner)
            return fault((where){schedule->rank, s}, "what is added is not in its slot, or belongs elsewhere");
    }
    return RA_OK;
}

static ra_status check_contents_of_step(const ra_problem *problem, const ra_schedule *schedules, holdings *all,
                                        int ranks, int s) {
    pack_all(schedules, all, ranks, s);
    for (int r = 0; r < ranks; r++) RA_TRY(check_computes(problem, &schedules[r], &all[r], s));
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++) RA_TRY(carry(problem, &schedules[from], &schedules[to], all, s));
    for (int r = 0; r < ranks; r++) {
        copy_contents(&schedules[r], all[r].next, all[r].now);
        RA_TRY(check_reduces(&schedules[r], &all[r], s));
    }
    return RA_OK;
}

/* A slot that is a source stays as it is: it is written once, and in full by then. */
static ra_status check_written_once(const ra_schedule *schedule, ra_cargo cargo) {
    int written[RA_SOURCE_SLOTS] = {0};
    for (int s = 0; s < schedule->step_count; s++) {
        const ra_step *step = &schedule->steps[s];
        where at = {schedule->rank, s};
        for (int64_t i = 0; i < step->pack_count; i++)
            if (step->packs[i].cargo == cargo && step->packs[i].slot < RA_SOURCE_SLOTS &&
                written[step->packs[i].slot]++)
                return fault(at, "a slot is packed into twice, and others may still use what it held");
        for (int64_t i = 0; i < step->compute_count; i++) {
            int slot = step->computes[i].grad_slot;
            if (cargo != RA_CARGO_GRAD || schedule->pass != RA_BACKWARD || slot == RA_OWN || slot >= RA_SOURCE_SLOTS)
                continue;
            if (!ra_step_sum_of(step, &step->computes[i]) && written[slot]++)
                return fault(at, "a slot is computed into twice, and others may still use what it held");
        }
    }
    return RA_OK;
}

/* Sources are slots that others may use, and stay. */
static ra_status check_sources(const ra_schedule *schedule) {
    for (int s = 0; s < schedule->step_count; s++)
        for (int64_t i = 0; i < schedule->steps[s].transfer_count; i++) {
            const ra_transfer *t = &schedule->steps[s].transfers[i];
            if (t->is_send || !ra_schedule_has_sources(schedule, t->cargo)) continue;
            if (t->source.rank < 0 || t->source.rank >= schedule->ranks || t->source.slot >= RA_SOURCE_SLOTS)
                return fault((where){schedule->rank, s}, "a source is no slot that others may use");
        }
    for (int c = 0; c < RA_CARGO_COUNT; c++)
        if (ra_schedule_has_sources(schedule, (ra_cargo)c)) RA_TRY(check_written_once(schedule, (ra_cargo)c));
    return RA_OK;
}

/* Goes through all steps with what each slot holds: nothing is computed with, sent or added that is not there. */
static ra_status check_contents(ra_pool *pool, const ra_problem *problem, const ra_schedule *schedules, int ranks) {
    holdings *all = ra_pool_take(pool, ranks, sizeof *all);
    if (!all) return ra_fail(RA_ERR_MEMORY, "no memory to check schedules");
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < RA_CARGO_COUNT; c++) {
            int64_t count = schedules[r].slots[c].count;
            content *slots = ra_pool_take(pool, 2 * count + 1, sizeof *slots);
            if (!slots) return ra_fail(RA_ERR_MEMORY, "no memory to check schedules");
            all[r].now[c] = slots;
            all[r].next[c] = slots + count;
        }
    for (int s = 0; s < schedules[0].step_count; s++) RA_TRY(check_contents_of_step(problem, schedules, all, ranks, s));
    return RA_OK;
}

ra_status ra_schedule_check(const ra_problem *problem, const ra_schedule *schedules, int ranks) {
    for (int r = 0; r < ranks; r++) {
        if (schedules[r].rank != r || schedules[r].ranks != ranks || schedules[r].step_count != schedules[0].step_count)
            return fault((where){r, 0}, "the schedule is another rank's or has another number of steps");
        for (int s = 0; s < schedules[r].step_count; s++) {
            const ra_step *step = &schedules[r].steps[s];
            where at = {r, s};
            RA_TRY(check_sizes(&schedules[r], step, at));
            for (int64_t i = 0; i < step->transfer_count; i++) RA_TRY(check_transfer_slot(step, i, at));
            for (int to = 0; to < ranks; to++) RA_TRY(check_messages(step, &schedules[to].steps[s], at, to));
        }
    }
    for (int r = 0; r < ranks; r++) RA_TRY(check_sources(&schedules[r]));
    ra_pool pool = {0};
    ra_status status = check_contents(&pool, problem, schedules, ranks);
    ra_pool_free(&pool);
    return status;
}
