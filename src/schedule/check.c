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
        if (step->transfers[*i].peer == peer && step->transfers[*i].is_send == is_send)
            return &step->transfers[(*i)++];
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
        if (!t->is_send && is_slot(t->cargo, t->slot, RA_CARGO_KV, c->kv_slot))
            return fault(at, "a slot is received into and computed with at once");
        if (is_slot(t->cargo, t->slot, RA_CARGO_GRAD, c->grad_slot))
            return fault(at, "a gradient slot travels and is computed into at once");
    }
    for (int64_t j = 0; j < step->pack_count; j++)
        if (!t->is_send && is_slot(t->cargo, t->slot, RA_CARGO_KV, step->packs[j].slot))
            return fault(at, "a slot is received into and packed into at once");
    return RA_OK;
}

static ra_status check_sizes(const ra_schedule *schedule, const ra_step *step, where at) {
    for (int64_t i = 0; i < step->transfer_count; i++) {
        const ra_transfer *t = &step->transfers[i];
        const ra_slots *slots = t->cargo == RA_CARGO_KV ? &schedule->kv : &schedule->grad;
        if (t->elements <= 0) return fault(at, "a message is empty");
        if (t->slot < 0 || t->slot >= slots->count || t->offset + t->elements > slots->elements[t->slot])
            return fault(at, "a message reaches beyond its slot");
        if (t->peer < 0 || t->peer >= schedule->ranks || t->peer == schedule->rank)
            return fault(at, "a message has no other end");
    }
    for (int64_t i = 0; i < step->compute_count; i++) {
        const ra_compute *c = &step->computes[i];
        if (c->kv_slot != RA_OWN && (c->kv_slot >= schedule->kv.count ||
                                     c->parcel.elements > schedule->kv.elements[c->kv_slot]))
            return fault(at, "a parcel is larger than its slot");
    }
    return RA_OK;
}

ra_status ra_schedule_check(const ra_schedule *schedules, int ranks) {
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
    return RA_OK;
}
