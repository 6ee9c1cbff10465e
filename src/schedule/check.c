/* Proving that the schedules of all ranks fit together, without running them. */
#include "base/status.h"
#include "schedule/schedule.h"

#include <string.h>

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

/* ---- what slots hold -------------------------------------------------------------------------------------------- */

/* Rows of that owner, so many elements of them from the slot's start on; none: elements 0. */
typedef struct content {
    int owner;
    int64_t elements;
} content;

/* A rank's slots, and what is on its way into them. */
typedef struct holdings {
    content *kv, *grad, *next_kv, *next_grad;
} holdings;

static content *slot_of(const holdings *h, ra_cargo cargo, int slot) {
    return cargo == RA_CARGO_KV ? &h->kv[slot] : &h->grad[slot];
}

static int holds(const content *c, int owner, int64_t elements) {
    return c->owner == owner && c->elements >= elements;
}

static void pack_all(const ra_schedule *schedules, holdings *all, int ranks, int s) {
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < schedules[r].steps[s].pack_count; i++) {
            const ra_pack *pack = &schedules[r].steps[s].packs[i];
            all[r].kv[pack->slot] = (content){r, pack->parcel.elements};
        }
    for (int r = 0; r < ranks; r++) {
        memcpy(all[r].next_kv, all[r].kv, (size_t)schedules[r].kv.count * sizeof(content));
        memcpy(all[r].next_grad, all[r].grad, (size_t)schedules[r].grad.count * sizeof(content));
    }
}

/* What `from` sends to `to` is there, and will be in the slot where it is received. */
static ra_status carry(const ra_schedule *from, const ra_schedule *to, holdings *all, int s) {
    int64_t i = 0, j = 0;
    const ra_transfer *sent, *expected;
    while ((sent = next_transfer(&from->steps[s], to->rank, 1, &i)) != NULL) {
        expected = next_transfer(&to->steps[s], from->rank, 0, &j);
        const content *have = slot_of(&all[from->rank], sent->cargo, sent->slot);
        if (sent->offset + sent->elements > have->elements)
            return fault((where){from->rank, s}, "what is sent is not in its slot");
        content *will = expected->cargo == RA_CARGO_KV ? all[to->rank].next_kv : all[to->rank].next_grad;
        will[expected->slot] = (content){have->owner, expected->elements};
    }
    return RA_OK;
}

static ra_status check_computes(const ra_schedule *schedule, holdings *h, int s) {
    const ra_step *step = &schedule->steps[s];
    for (int64_t i = 0; i < step->compute_count; i++) {
        const ra_compute *c = &step->computes[i];
        if (c->kv_slot != RA_OWN && !holds(&h->kv[c->kv_slot], c->parcel.owner, c->parcel.elements))
            return fault((where){schedule->rank, s}, "what is computed with is not in its slot");
        if (schedule->pass == RA_BACKWARD && c->grad_slot != RA_OWN)
            h->next_grad[c->grad_slot] = (content){c->parcel.owner, c->parcel.elements};
    }
    return RA_OK;
}

static ra_status check_folds(const ra_schedule *schedule, const holdings *h, int s) {
    const ra_step *step = &schedule->steps[s];
    for (int64_t i = 0; i < step->fold_count; i++) {
        const ra_fold *f = &step->folds[i];
        int owner = f->to == RA_OWN ? schedule->rank : h->grad[f->to].owner;
        if (!holds(&h->grad[f->from], f->parcel.owner, f->parcel.elements) || owner != f->parcel.owner)
            return fault((where){schedule->rank, s}, "what is added is not in its slot, or belongs elsewhere");
    }
    return RA_OK;
}

static ra_status check_contents_of_step(const ra_schedule *schedules, holdings *all, int ranks, int s) {
    pack_all(schedules, all, ranks, s);
    for (int r = 0; r < ranks; r++) RA_TRY(check_computes(&schedules[r], &all[r], s));
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++) RA_TRY(carry(&schedules[from], &schedules[to], all, s));
    for (int r = 0; r < ranks; r++) {
        memcpy(all[r].kv, all[r].next_kv, (size_t)schedules[r].kv.count * sizeof(content));
        memcpy(all[r].grad, all[r].next_grad, (size_t)schedules[r].grad.count * sizeof(content));
        RA_TRY(check_folds(&schedules[r], &all[r], s));
    }
    return RA_OK;
}

/* Goes through all steps with what each slot holds: nothing is computed with, sent or added that is not there. */
static ra_status check_contents(ra_pool *pool, const ra_schedule *schedules, int ranks) {
    holdings *all = ra_pool_take(pool, ranks, sizeof *all);
    if (!all) return ra_fail(RA_ERR_MEMORY, "no memory to check schedules");
    for (int r = 0; r < ranks; r++) {
        int64_t kv = schedules[r].kv.count, grad = schedules[r].grad.count;
        content *slots = ra_pool_take(pool, 2 * (kv + grad) + 1, sizeof *slots);
        if (!slots) return ra_fail(RA_ERR_MEMORY, "no memory to check schedules");
        all[r] = (holdings){slots, slots + kv, slots + kv + grad, slots + 2 * kv + grad};
    }
    for (int s = 0; s < schedules[0].step_count; s++) RA_TRY(check_contents_of_step(schedules, all, ranks, s));
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
    ra_pool pool = {0};
    ra_status status = check_contents(&pool, schedules, ranks);
    ra_pool_free(&pool);
    return status;
}
