#include "exec/step_messages.h"

#include "base/status.h"

/* What a message is matched by, beside its peer, in the 15 bits of a tag:
 *
 *     serial 8 | pass 2 | step 2 | cargo 3
 *
 * So messages of different passes, of plans made less than 256 plans apart, or of neighbouring steps never meet, and
 * ranks that run different ones get an error rather than each other's rows. A pass of 3 is nobody's: the tags of
 * exchanges (transport/collective.c) are there. */
enum { STEP_TAGS = 4 * RA_CARGO_TAGS, PASS_TAGS = 4 * STEP_TAGS, PLANS_TOLD_APART = 256 };

static int tag_of(const ra_program *program, int tag_in_pass) {
    int pass = program->schedule->pass == RA_BACKWARD ? RA_TAGS_BACKWARD : RA_TAGS_FORWARD;
    return program->setup->serial % PLANS_TOLD_APART * PASS_TAGS + pass * STEP_TAGS + tag_in_pass % STEP_TAGS;
}

/* What is not copied has no data, but counts as what it stands for. */
static ra_message bind_message(const ra_program *program, const ra_transfer *transfer, int shared) {
    size_t bytes = ra_cargo_bytes(&program->setup->problem, transfer->cargo);
    unsigned char *slot = ra_program_slot(program, transfer->cargo, transfer->slot);
    return (ra_message){.peer = transfer->peer,
                        .is_send = transfer->is_send,
                        .tag = tag_of(program, transfer->tag),
                        .data = shared ? NULL : slot + (size_t)transfer->offset * bytes,
                        .bytes = (size_t)transfer->elements * bytes};
}

ra_status ra_bind_messages(ra_pool *pool, const ra_program *program, const ra_step *step, const ra_slot_memory *at,
                           ra_bound_step *bound) {
    bound->messages = ra_pool_take(pool, step->transfer_count, sizeof *bound->messages);
    if (!bound->messages) return ra_no_memory();
    bound->message_count = (int)step->transfer_count;
    for (int64_t i = 0; i < step->transfer_count; i++) {
        bound->messages[i] = bind_message(program, &step->transfers[i], at->shared[step->transfers[i].cargo]);
        if (!bound->messages[i].is_send) continue;
        bound->sent_bytes += (int64_t)bound->messages[i].bytes;
        bound->sent_messages++;
    }
    return RA_OK;
}

ra_status ra_bind_messages_again(ra_pool *pool, const ra_bound_step *from, ra_pass_tags pass, ra_bound_step *bound) {
    bound->messages = ra_pool_take(pool, from->message_count, sizeof *bound->messages);
    if (!bound->messages) return ra_no_memory();
    bound->message_count = from->message_count;
    for (int i = 0; i < from->message_count; i++) {
        ra_message *message = &bound->messages[i];
        *message = from->messages[i];
        message->tag += ((int)pass - message->tag % PASS_TAGS / STEP_TAGS) * STEP_TAGS;
    }
    return RA_OK;
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* In place of a cargo, of messages that carry none. */
enum { NO_CARGO = RA_CARGO_TAGS - 1 };

ra_message ra_order_message(const ra_program *program, int step, int peer, int is_send) {
    int tag = tag_of(program, RA_CARGO_TAGS * step + NO_CARGO);
    return (ra_message){.peer = peer, .is_send = is_send, .tag = tag, .data = NULL, .bytes = 1};
}

ra_status ra_bind_star(ra_pool *pool, const ra_program *program, int step, int hub, int hub_waits,
                       ra_bound_step *bound) {
    int rank = program->schedule->rank, ranks = program->schedule->ranks;
    bound->messages = ra_pool_take(pool, ranks, sizeof *bound->messages);
    if (!bound->messages) return ra_no_memory();
    for (int peer = 0; peer < ranks; peer++)
        if (peer != rank && (rank == hub || peer == hub))
            bound->messages[bound->message_count++] =
                ra_order_message(program, step, peer, hub_waits ? rank != hub : rank == hub);
    return RA_OK;
}

/* So many ranks wait each for all others, in one round. Streams then wait for one another once and not twice, one after
 * the other, and hosts too; of more ranks the driver, which does one call at a time, would have more to do. */
enum { MOST_AT_ONCE = 4 };

int ra_rounds_of(int ranks) {
    return ranks > MOST_AT_ONCE ? 2 : ranks > 1;
}

ra_status ra_bind_round(ra_pool *pool, const ra_program *program, int step, int round, ra_bound_step *bound) {
    int rank = program->schedule->rank, ranks = program->schedule->ranks;
    if (ranks > MOST_AT_ONCE) return ra_bind_star(pool, program, step, 0, round == 0, bound);
    bound->messages = ra_pool_take(pool, 2 * (int64_t)ranks, sizeof *bound->messages);
    if (!bound->messages) return ra_no_memory();
    for (int peer = 0; peer < ranks; peer++)
        for (int is_send = 0; is_send < 2 && peer != rank; is_send++)
            bound->messages[bound->message_count++] = ra_order_message(program, step, peer, is_send);
    return RA_OK;
}
