/* When a wait ends, by what a scripted transport says of the other ranks: silence is counted, work and waiting are not.
 */
#include "support/cmocka.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/comm.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4 };
static const double TIMEOUT = 0.3;

/* Rank 0, unless another is given, which waits for rank 1 and then for rank 2. Times are seconds since the post. */
typedef struct script {
    double done_at; /* the group is done; never when negative */
    double next_at; /* rank 1's message is complete; 0: not before the group is done */
    void (*know)(const struct script *script, int peer, double at, ra_sign *sign_out);
    double oversleep_at, oversleep; /* a poll after that time takes longer than it should, once */
    double compute;                 /* seconds that rank 0 computes between the post and the wait, making progress */
    double stopped;                 /* seconds after which it noticed that there is no more to compute for */
    double start;
    int rank; /* that waits, of a comm of RANKS */
    int questions, questions_of_2;
    char told[512];
} script;

static void sleep_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    (void)messages, (void)count, (void)stream;
    ((script *)self)->start = ra_clock();
    return RA_OK;
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    script *s = self;
    double at = ra_clock() - s->start, left = s->done_at - at;
    if (s->done_at >= 0 && left < seconds) seconds = left > 0 ? left : 0;
    if (s->oversleep > 0 && at >= s->oversleep_at) {
        seconds += s->oversleep;
        s->oversleep = 0;
    }
    sleep_for(seconds);
    *done_out = s->done_at >= 0 && ra_clock() - s->start >= s->done_at;
    *culprit_out = *done_out ? -1 : s->next_at > 0 && ra_clock() - s->start >= s->next_at;
    return RA_OK;
}

static int abandon(void *self, const char *reason) {
    snprintf(((script *)self)->told, sizeof((script *)self)->told, "%s", reason);
    return 1;
}

static void destroy(void *self) {
    (void)self;
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    script *s = self;
    s->questions++;
    s->questions_of_2 += peer == 2;
    s->know(s, peer, ra_clock() - s->start, sign_out);
}

static const ra_transport_ops scripted_ops = {.struct_size = sizeof scripted_ops,
                                              .name = "scripted",
                                              .post = post,
                                              .poll = poll,
                                              .abandon = abandon,
                                              .destroy = destroy,
                                              .inquire = inquire};

/* As the executor does: nothing is computed to its end for a group that has failed. */
static void compute(script *s, ra_comm *comm, const ra_message *messages, int count) {
    ra_comm_watch(comm, messages, count, TIMEOUT);
    while (ra_clock() - s->start < s->compute && !ra_comm_has_failed(comm)) {
        sleep_for(TIMEOUT / 100);
        ra_comm_progress(comm);
    }
    s->stopped = ra_clock() - s->start;
}

/* Returns the status of the wait, and how long it took. */
static ra_status run(script *s, const ra_transport_ops *ops, double *seconds_out) {
    ra_comm *comm = NULL;
    char bytes[2];
    ra_message messages[] = {{.peer = 1, .data = &bytes[0], .bytes = 1}, {.peer = 2, .data = &bytes[1], .bytes = 1}};
    ra_place place = {"a test", 3};
    assert_int_equal(ra_comm_create_custom(ops, s, s->rank, RANKS, &comm), RA_OK);
    assert_int_equal(ra_comm_post(comm, messages, 2, NULL, place), RA_OK);
    if (s->compute > 0) compute(s, comm, messages, 2);
    ra_status status = ra_comm_wait(comm, messages, 2, TIMEOUT, place);
    *seconds_out = ra_clock() - s->start;
    assert_int_equal(ra_comm_lost(comm), status != RA_OK);
    ra_comm_destroy(comm);
    return status;
}

static void expect_done(script *s) {
    double seconds;
    if (run(s, &scripted_ops, &seconds) != RA_OK) fail_msg("after %.2f s: %s", seconds, ra_last_error());
}

/* The wait ends between `least` timeouts and one more, with an error that has those words, which the peers are told. */
static void expect_timeout(script *s, double least, const char *words) {
    double seconds;
    assert_int_equal(run(s, &scripted_ops, &seconds), RA_ERR_TIMEOUT);
    assert_true(seconds >= least * TIMEOUT && seconds < (least + 1) * TIMEOUT);
    if (!strstr(ra_last_error(), words)) fail_msg("'%s' does not say '%s'", ra_last_error(), words);
    assert_non_null(strstr(ra_last_error(), ", step 3 of a test, waiting for rank 1:"));
    assert_string_equal(s->told, ra_last_error());
}

static void computes(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s, (void)peer, (void)at;
    *sign_out = (ra_sign){0, -1, 0};
}

static void is_dead(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s, (void)peer;
    *sign_out = (ra_sign){at + 100, -1, 0};
}

static void dies_after_a_second(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s, (void)peer;
    *sign_out = (ra_sign){at < 1 ? 0 : at - 1, -1, 0};
}

/* Silent for 0.9 of the timeout, then alive for a moment, and so on. */
static void stops_and_goes_on(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s, (void)peer;
    double silent = at;
    while (silent > 0.9 * TIMEOUT) silent -= 0.9 * TIMEOUT;
    *sign_out = (ra_sign){silent, -1, 0};
}

/* Rank 1 waits for rank 2, which computes. */
static void waits_for_one_that_computes(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = peer == 1 ? (ra_sign){0, 2, at} : (ra_sign){0, -1, 0};
}

/* Rank 1 waits for rank 2, which is dead: it is for rank 1 to say so. */
static void waits_for_the_dead(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = peer == 1 ? (ra_sign){0, 2, at} : (ra_sign){at, -1, 0};
}

static void circle(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = (ra_sign){0, (peer + 1) % RANKS, at};
}

/* Rank 2 has got something a moment ago. */
static void circle_that_moves(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = (ra_sign){0, (peer + 1) % RANKS, peer == 2 ? 0.5 * TIMEOUT : at};
}

/* Rank 1 is held by rank 3, which was stopped; rank 2 computes. */
static void silent_with_another(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = (ra_sign){peer == 2 ? 0 : at, -1, 0};
}

/* Rank 1 and this one wait for each other; rank 3 was stopped, and rank 2 computes. */
static void circle_beside_a_silent_rank(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = peer == 1 ? (ra_sign){0, 0, at} : peer == 2 ? (ra_sign){0, -1, 0} : (ra_sign){at, -1, 0};
}

/* Nobody has been heard of before the question, which each answers in an eighth of the timeout; of which time is told
 * by the first question to rank 2, who is asked only when the roll is called. */
static double roll_called;
static void circle_of_ranks_not_heard_of(const script *s, int peer, double at, ra_sign *sign_out) {
    if (peer == 2 && s->questions_of_2 == 1) roll_called = at;
    *sign_out = peer == 1 ? (ra_sign){0, 0, at} : (ra_sign){at < roll_called + TIMEOUT / 8 ? 100 : 0, -1, 0};
}

static void circle_of_others(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = (ra_sign){0, peer == 1 ? 2 : 1, at};
}

static void test_work_is_waited_for(void **state) {
    (void)state;
    expect_done(&(script){.done_at = 3 * TIMEOUT, .know = computes});
    expect_done(&(script){.done_at = 3 * TIMEOUT, .know = waits_for_one_that_computes});
    expect_done(&(script){.done_at = 3 * TIMEOUT, .know = stops_and_goes_on});
}

static void test_silence_is_not(void **state) {
    (void)state;
    expect_timeout(&(script){.done_at = -1, .know = is_dead}, 1, "rank 1 has been silent for");
    expect_timeout(&(script){.done_at = -1, .know = silent_with_another}, 1, ", rank 3 has been silent for");
    assert_null(strstr(ra_last_error(), "rank 2"));
    expect_timeout(&(script){.done_at = -1, .know = dies_after_a_second}, 1 + 1 / TIMEOUT,
                   "rank 1 has been silent for");
}

/* Rank 2, too, was last heard of long ago, until it is asked. */
static void answers_when_asked(const script *s, int peer, double at, ra_sign *sign_out) {
    *sign_out = (ra_sign){peer == 2 && at < s->next_at + 0.5 * TIMEOUT ? 100 : 0, -1, 0};
}

static void test_each_peer_is_given_its_time(void **state) {
    (void)state;
    expect_done(&(script){.done_at = 4 * TIMEOUT, .next_at = 2 * TIMEOUT, .know = answers_when_asked});
}

static void test_a_waiter_is_not_blamed(void **state) {
    (void)state;
    expect_done(&(script){.done_at = 3 * TIMEOUT, .know = waits_for_the_dead});
    expect_done(&(script){.done_at = 3 * TIMEOUT, .know = circle_of_others});
}

static void test_a_circle_ends(void **state) {
    (void)state;
    expect_timeout(&(script){.done_at = -1, .know = circle}, 1, "in a circle");
    expect_done(&(script){.done_at = 3 * TIMEOUT, .know = circle_that_moves});
}

static void circle_with_rank_3(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s;
    *sign_out = peer == 1 ? (ra_sign){0, 3, at} : (ra_sign){0, -1, 0};
}

/* The lowest rank of a circle asks the others; the rest wait for what it has to say. */
static void test_one_rank_of_a_circle_asks(void **state) {
    (void)state;
    script higher = {.rank = 3, .done_at = -1, .know = circle_with_rank_3};
    expect_timeout(&higher, 1.25, "in a circle");
    assert_int_equal(higher.questions_of_2, 0);
    script lowest = {.done_at = -1, .know = circle};
    expect_timeout(&lowest, 1, "in a circle");
    assert_true(lowest.questions_of_2 > 0);
}

static void test_a_silent_rank_is_blamed_for_a_circle(void **state) {
    (void)state;
    expect_timeout(&(script){.done_at = -1, .know = circle_beside_a_silent_rank}, 1, "rank 3 has been silent for");
    expect_timeout(&(script){.done_at = -1, .know = circle_of_ranks_not_heard_of}, 1, "in a circle");
}

/* This rank was stopped itself, and then hears at once that the other is alive; or that it is not, in its own time. */
static void alive_after_it(const script *s, int peer, double at, ra_sign *sign_out) {
    (void)s, (void)peer;
    *sign_out = (ra_sign){at < 5.5 * TIMEOUT ? at : 0, -1, 0};
}

static void test_own_absence_is_nobodys_silence(void **state) {
    (void)state;
    expect_done(&(script){
        .done_at = 7 * TIMEOUT, .know = alive_after_it, .oversleep_at = 0.1 * TIMEOUT, .oversleep = 5 * TIMEOUT});
    expect_timeout(&(script){.done_at = -1, .know = is_dead, .oversleep_at = 0.5 * TIMEOUT, .oversleep = 3 * TIMEOUT},
                   4.5, "silent");
}

static void test_the_quick_ask_nothing(void **state) {
    (void)state;
    script s = {.done_at = TIMEOUT / 100, .know = computes};
    expect_done(&s);
    assert_int_equal(s.questions, 0);
}

/* A table from before there was an inquire: its size says so, and what stands behind it is not looked at. */
static void test_without_signs_time_counts(void **state) {
    (void)state;
    ra_transport_ops ops = scripted_ops;
    script s = {.done_at = 3 * TIMEOUT, .know = computes};
    double seconds;
    ops.struct_size = offsetof(ra_transport_ops, inquire);
    assert_int_equal(run(&s, &ops, &seconds), RA_ERR_TIMEOUT);
    assert_true(seconds >= TIMEOUT && seconds < 2 * TIMEOUT);
    assert_int_equal(s.questions, 0);
}

/* A rank that computes for long finds a dead peer as soon as one that waits, and lives with one that is alive. */
static void test_peers_are_watched_while_computing(void **state) {
    (void)state;
    script dead = {.done_at = -1, .know = is_dead, .compute = 10 * TIMEOUT};
    expect_timeout(&dead, 1, "rank 1 has been silent");
    assert_true(dead.stopped < 2 * TIMEOUT);
    script alive = {.done_at = 5 * TIMEOUT, .know = computes, .compute = 4 * TIMEOUT};
    expect_done(&alive);
    assert_true(alive.stopped >= 4 * TIMEOUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers_are_watched_while_computing),
        cmocka_unit_test(test_work_is_waited_for),
        cmocka_unit_test(test_silence_is_not),
        cmocka_unit_test(test_each_peer_is_given_its_time),
        cmocka_unit_test(test_a_waiter_is_not_blamed),
        cmocka_unit_test(test_a_circle_ends),
        cmocka_unit_test(test_one_rank_of_a_circle_asks),
        cmocka_unit_test(test_a_silent_rank_is_blamed_for_a_circle),
        cmocka_unit_test(test_own_absence_is_nobodys_silence),
        cmocka_unit_test(test_the_quick_ask_nothing),
        cmocka_unit_test(test_without_signs_time_counts),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
