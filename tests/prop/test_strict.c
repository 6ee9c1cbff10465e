/* What transport.h promises to a transport, checked by one that is called as a comm pleases, over random problems: one
 * group at a time and no two calls at once, messages that are right and stay as they are, nothing but abandon after an
 * error and nothing but destroy after that. In most runs one call of one rank fails. On the CPU, and on a device whose
 * messages go through host memory. RINGATTN_SWEEP=N runs N problems; RINGATTN_SEED=S starts at that seed. */
#include "support/cmocka.h"
#include "support/problems/sweep.h"
#include "support/queued/queued.h"
#include "support/ranks.h"
#include "support/rng.h"
#include "support/scale.h"

#include "base/status.h"
#include "transport/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 5 };

/* ---- the transport ----------------------------------------------------------------------------------------------- */

/* Over an in-process rank, which does the work. */
typedef struct strict {
    void *inner;
    int rank, ranks;
    pthread_mutex_t busy;
    int is_in_flight, has_failed, is_abandoned;
    const ra_message *messages; /* the last group, and what it was when it was posted */
    ra_message *posted;
    int count;
    int calls, fails_at; /* posts and polls; the number of the one that fails, from 0; -1: none */
    const char *broken;  /* the first promise that was; NULL: none */
} strict;

static void promise(strict *s, int kept, const char *what) {
    if (!kept && !s->broken) s->broken = what;
}

static void enter(strict *s, const char *what) {
    int is_free = pthread_mutex_trylock(&s->busy) == 0;
    if (!is_free) pthread_mutex_lock(&s->busy);
    promise(s, is_free, "two calls at once");
    promise(s, !s->has_failed && !s->is_abandoned, what);
}

/* Ends a call that gave this status. */
static ra_status leave(strict *s, ra_status status) {
    if (status != RA_OK) s->has_failed = 1;
    pthread_mutex_unlock(&s->busy);
    return status;
}

static int fails_now(strict *s) {
    return s->calls++ == s->fails_at;
}

static void check_message(strict *s, const ra_message *m) {
    promise(s, m->peer >= 0 && m->peer < s->ranks && m->peer != s->rank, "a message has no other end");
    promise(s, m->tag >= 0 && m->tag <= 32767, "a tag is out of range");
    promise(s, m->bytes >= 1 && m->data, "a message is empty");
}

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    strict *s = self;
    enter(s, "post after an error");
    promise(s, !s->is_in_flight, "post while a group is in flight");
    promise(s, !stream, "a stream for host memory");
    for (int i = 0; i < count; i++) check_message(s, &messages[i]);
    if (fails_now(s)) return leave(s, ra_fail(RA_ERR_TRANSPORT, "no cable"));
    s->posted = realloc(s->posted, (size_t)(count + 1) * sizeof *messages);
    if (!s->posted) abort();
    if (count) memcpy(s->posted, messages, (size_t)count * sizeof *messages);
    s->messages = messages;
    s->count = count;
    s->is_in_flight = count > 0;
    return leave(s, ra_thread_ops.post(s->inner, messages, count, NULL));
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    strict *s = self;
    enter(s, "poll after an error");
    promise(s, seconds >= 0, "a wait of less than no time");
    for (int i = 0; i < s->count && s->is_in_flight; i++)
        promise(s, memcmp(&s->messages[i], &s->posted[i], sizeof *s->posted) == 0, "messages change in flight");
    *done_out = 0;
    *culprit_out = -1;
    if (fails_now(s)) return leave(s, ra_fail(RA_ERR_TRANSPORT, "no cable"));
    ra_status status = ra_thread_ops.poll(s->inner, seconds, done_out, culprit_out);
    if (status == RA_OK && *done_out) s->is_in_flight = 0;
    return leave(s, status);
}

static int abandon(void *self, const char *reason) {
    strict *s = self;
    pthread_mutex_lock(&s->busy);
    promise(s, !s->is_abandoned, "abandon twice");
    promise(s, reason && *reason, "abandon without a reason");
    s->is_abandoned = 1;
    s->is_in_flight = 0;
    int is_over = ra_thread_ops.abandon(s->inner, reason);
    pthread_mutex_unlock(&s->busy);
    return is_over;
}

/* What was found is asked for after that: the test frees it. */
static void destroy(void *self) {
    strict *s = self;
    promise(s, !s->is_in_flight, "destroy while a group is in flight");
    ra_thread_ops.destroy(s->inner);
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    strict *s = self;
    enter(s, "inquire after an error");
    promise(s, peer >= 0 && peer < s->ranks && peer != s->rank, "inquire after nobody");
    ra_thread_ops.inquire(s->inner, peer, sign_out);
    leave(s, RA_OK);
}

static ra_status reserve(void *self, int count) {
    strict *s = self;
    enter(s, "reserve after an error");
    promise(s, !s->is_in_flight && count >= 0, "reserve while a group is in flight");
    return leave(s, ra_thread_ops.reserve(s->inner, count));
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct strict_run {
    const sweep_data *data;
    int asks;                  /* ranks ask whether the comm is lost before they use it */
    int is_usable[MOST_RANKS]; /* although it failed */
} strict_run;

static ra_status body(ra_comm *comm, void *user) {
    strict_run *run = user;
    sweep_result result;
    char why[1024], mine = 0, all[MOST_RANKS];
    if (run->asks) ra_comm_lost(comm);
    ra_status status = sweep_run(comm, run->data, 1, &result);
    if (status == RA_OK) return RA_OK;
    snprintf(why, sizeof why, "%s", ra_last_error());
    ra_comm_progress(comm);
    run->is_usable[ra_comm_rank(comm)] = !ra_comm_lost(comm) || ra_comm_allgather(comm, &mine, 1, all, 5) == RA_OK;
    ra_comm_progress(comm);
    return ra_fail(status, "%s", why);
}

static void make_ranks(rng *r, int ranks, int victim, strict *all, ra_comm **comms_out) {
    void *inner[MOST_RANKS];
    ra_transport_ops ops = {.struct_size = sizeof ops,
                            .name = "strict",
                            .post = post,
                            .poll = poll,
                            .abandon = abandon,
                            .destroy = destroy,
                            .inquire = rng_one_in(r, 4) ? NULL : inquire,
                            .reserve = rng_one_in(r, 4) ? NULL : reserve};
    int fails_at = (int)rng_between(r, 0, rng_one_in(r, 2) ? 10 : 80);
    assert_int_equal(ra_thread_create(ranks, inner), RA_OK);
    for (int k = 0; k < ranks; k++) {
        all[k] = (strict){.inner = inner[k], .rank = k, .ranks = ranks, .fails_at = k == victim ? fails_at : -1};
        pthread_mutex_init(&all[k].busy, NULL);
        assert_int_equal(ra_comm_create_custom(&ops, &all[k], k, ranks, &comms_out[k]), RA_OK);
    }
}

/* What is wrong with a run; NULL: nothing. */
static const char *fault_of(const strict *all, const strict_run *run, const rank_outcome *outcomes, int ranks,
                            int victim) {
    int fired = victim >= 0 && all[victim].calls > all[victim].fails_at;
    for (int k = 0; k < ranks; k++) {
        if (all[k].broken) return all[k].broken;
        if (run->is_usable[k]) return "a comm can be used after a failure";
        if (!fired && outcomes[k].status != RA_OK) return outcomes[k].error;
    }
    return fired && outcomes[victim].status == RA_OK ? "a failure was not noticed" : NULL;
}

static int check_one(uint64_t seed, const ra_backend *backend) {
    static test_case c;
    static strict_run run;
    rng r = {seed * 7919};
    strict all[MOST_RANKS];
    ra_comm *comms[MOST_RANKS];
    rank_outcome outcomes[MOST_RANKS];
    char text[512];
    int ranks = (int)rng_between(&r, 2, MOST_RANKS), victim = (int)rng_between(&r, -1, ranks - 1);
    case_make(&c, seed, RA_F64, 3e5);
    c.options.timeout_seconds = 20;
    c.options.backend = backend;
    if (backend) c.options.kernel = NULL;
    run = (strict_run){.data = sweep_data_make(&c), .asks = rng_one_in(&r, 2)};
    assert_non_null(run.data);
    make_ranks(&r, ranks, victim, all, comms);
    ranks_run(comms, ranks, body, &run, outcomes);
    ranks_destroy(comms, ranks);
    const char *fault = fault_of(all, &run, outcomes, ranks, victim);
    if (fault)
        printf("FAILED p=%d, rank %d fails in call %d, %s\n  %s\n", ranks, victim,
               victim < 0 ? -1 : all[victim].fails_at, case_text(&c, text, sizeof text), fault);
    for (int k = 0; k < ranks; k++) free(all[k].posted), pthread_mutex_destroy(&all[k].busy);
    sweep_data_free((sweep_data *)run.data);
    return !fault;
}

static void sweep(int full, int on_device) {
    int count = number_from("RINGATTN_SWEEP", full), first = number_from("RINGATTN_SEED", 1), bad = 0;
    printf("problems %d, seeds %d to %d\n", count, first, first + count - 1);
    for (int seed = first; seed < first + count && bad < 5; seed++) {
        queued_habits habits = {.seed = (uint64_t)seed, .delay_one_in = 6, .delay_most_us = 300};
        queued_device *queued = on_device ? queued_create(habits) : NULL;
        bad += !check_one((uint64_t)seed, queued ? queued_backend(queued) : NULL);
        if (!queued) continue;
        assert_int_equal(queued_streams(queued), 0);
        assert_int_equal(queued_bytes(queued), 0);
        queued_destroy(queued);
    }
    assert_int_equal(bad, 0);
}

static void test_on_the_cpu(void **state) {
    (void)state;
    sweep(400, 0);
}

static void test_through_host_memory(void **state) {
    (void)state;
    sweep(200, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_on_the_cpu), cmocka_unit_test(test_through_host_memory)};
    return cmocka_run_group_tests_name("strict", tests, NULL, NULL);
}
