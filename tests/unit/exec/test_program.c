/* Bound programs, of random problems, ranks and strategies: what their messages are matched by, where they lie, and
 * what the comm is told of them. */
#include "support/cmocka.h"
#include "support/problems/case.h"
#include "support/rng.h"

#include "exec/program.h"
#include "plan/predict.h"

#include <stdlib.h>

enum { CASES = 150 };

typedef struct bound {
    ra_pool pool;
    ra_prediction p;
    unsigned char *memory;
    ra_comm *comm;
    ra_program forward, backward, again;
} bound;

static void bind(bound *b, const test_case *c, ra_seat seat, int serial) {
    *b = (bound){.pool = {0}};
    if (ra_setup_make(&c->problem, &c->options, seat, &b->p.setup) != RA_OK) fail_msg("%s", ra_last_error());
    b->p.setup.serial = serial;
    assert_int_equal(ra_prediction_make(&b->pool, &b->p), RA_OK);
    assert_int_equal(ra_comm_create_self(&b->comm), RA_OK);
    b->memory = malloc(b->p.workspace.bytes + 1);
    assert_non_null(b->memory);
    const ra_setup *setup = &b->p.setup;
    const ra_workspace *w = &b->p.workspace;
    const ra_schedule *forward = &b->p.forward, *backward = &b->p.backward;
    const ra_sharing *copied = &(ra_sharing){0};
    assert_int_equal(ra_program_bind(&b->pool, setup, w, b->memory, forward, copied, b->comm, &b->forward), RA_OK);
    assert_int_equal(ra_program_bind(&b->pool, setup, w, b->memory, backward, copied, b->comm, &b->backward), RA_OK);
    assert_int_equal(ra_program_bind_again(&b->pool, &b->forward, RA_TAGS_STATES_AGAIN, &b->again), RA_OK);
}

static void release(bound *b) {
    ra_program_release(&b->forward);
    ra_program_release(&b->backward);
    ra_comm_destroy(b->comm);
    ra_pool_free(&b->pool);
    free(b->memory);
}

static void random_case(test_case *c, uint64_t seed, ra_seat *seat_out) {
    static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_ALLGATHER,
                                             RA_STRATEGY_PASSQ};
    rng r = {seed};
    case_make(c, seed, rng_one_in(&r, 2) ? RA_F32 : RA_BF16, 1e6);
    c->options.backward = 1;
    c->options.strategy = strategies[seed % 4];
    int ranks = (int)rng_between(&r, 2, 6);
    *seat_out = (ra_seat){(int)rng_between(&r, 0, ranks - 1), ranks, ranks, ranks, 0};
}

/* Every message lies in the block; receives of a step overlap nothing that the step sends or receives; and the group
 * size covers every step and is met by one. */
static void check_messages(const bound *b, const ra_program *program) {
    ra_group_size most = {0}, seen = {0};
    ra_program_group_size(program, &most);
    int64_t bytes = 0, count = 0;
    for (int s = 0; s < program->schedule->step_count; s++) {
        const ra_bound_step *step = &program->steps[s];
        size_t sent = 0, received = 0;
        for (int i = 0; i < step->message_count; i++) {
            const ra_message *m = &step->messages[i];
            const unsigned char *from = m->data;
            assert_true(from >= b->memory && from + m->bytes <= b->memory + b->p.workspace.bytes && m->bytes > 0);
            assert_true(m->tag >= 0 && m->tag <= 32767 && m->peer != b->p.setup.rank);
            *(m->is_send ? &sent : &received) += m->bytes;
            for (int j = 0; j < step->message_count && !m->is_send; j++) {
                const unsigned char *other = step->messages[j].data;
                assert_true(i == j || other >= from + m->bytes || from >= other + step->messages[j].bytes);
            }
            bytes += m->is_send ? (int64_t)m->bytes : 0;
            count += m->is_send != 0;
        }
        assert_int_equal(step->sent_bytes, sent);
        if (step->message_count > seen.messages) seen.messages = step->message_count;
        if (sent > seen.send_bytes) seen.send_bytes = sent;
        if (received > seen.receive_bytes) seen.receive_bytes = received;
    }
    int64_t planned_bytes, planned_count;
    ra_schedule_traffic(&b->p.setup.problem, program->schedule, &planned_bytes, &planned_count);
    assert_int_equal(bytes, planned_bytes);
    assert_int_equal(count, planned_count);
    assert_int_equal(most.messages, seen.messages);
    assert_int_equal(most.send_bytes, seen.send_bytes);
    assert_int_equal(most.receive_bytes, seen.receive_bytes);
}

static void test_messages(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        test_case c;
        ra_seat seat;
        bound b;
        random_case(&c, seed, &seat);
        bind(&b, &c, seat, 0);
        check_messages(&b, &b.forward);
        check_messages(&b, &b.backward);
        check_messages(&b, &b.again);
        release(&b);
    }
}

/* No message of one program meets one of the other. Programs of one schedule pair their steps: neighbouring steps too
 * must not meet, which distance says. */
static void must_not_meet(const ra_program *a, const ra_program *b, int distance) {
    for (int s = 0; s < a->schedule->step_count; s++)
        for (int t = s + distance; t < b->schedule->step_count && t < s + distance + 2; t++)
            for (int i = 0; i < a->steps[s].message_count; i++)
                for (int j = 0; j < b->steps[t].message_count; j++)
                    assert_int_not_equal(a->steps[s].messages[i].tag, b->steps[t].messages[j].tag);
}

static void test_tags_keep_plans_passes_and_steps_apart(void **state) {
    (void)state;
    static const int serials[] = {1, 2, 128, 255};
    for (uint64_t seed = 1; seed <= CASES / 10; seed++) {
        test_case c;
        ra_seat seat;
        bound first, later;
        random_case(&c, seed, &seat);
        bind(&first, &c, seat, 0);
        must_not_meet(&first.forward, &first.backward, 0);
        must_not_meet(&first.forward, &first.again, 0);
        must_not_meet(&first.backward, &first.again, 0);
        must_not_meet(&first.forward, &first.forward, 1);
        must_not_meet(&first.backward, &first.backward, 1);
        for (int i = 0; i < 4; i++) {
            bind(&later, &c, seat, serials[i]);
            must_not_meet(&first.forward, &later.forward, 0);
            must_not_meet(&first.backward, &later.backward, 0);
            must_not_meet(&first.forward, &later.backward, 0);
            release(&later);
        }
        release(&first);
    }
}

/* A program that was never bound can be released, and tells the comm nothing. */
static void test_a_program_of_zeros(void **state) {
    (void)state;
    ra_program none = {0};
    ra_group_size most = {3, 5, 7};
    ra_program_group_size(&none, &most);
    ra_program_release(&none);
    assert_int_equal(most.messages, 3);
    assert_int_equal(most.send_bytes, 5);
    assert_int_equal(most.receive_bytes, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_tags_keep_plans_passes_and_steps_apart),
        cmocka_unit_test(test_a_program_of_zeros),
    };
    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
