/* Random groups of messages of odd and large sizes, over what UCX chooses and over TCP, with a second comm of the same
 * ranks that has a group in flight at the same time. Every byte is checked, and the bytes around every buffer. */
#include "transport/ucx/ucx_transport.h"
#include "ucx_test.h"

#include "processes/messages.h"

/* Around the sizes at which UCX changes how it sends, and messages begin to go in chunks. */
static size_t random_size(void *self, uint64_t *random) {
    (void)self;
    static const size_t edges[] = {93, 8192, 8256, 20553, 65536, 256000, 262144, 512000};
    switch (next_random(random) % 8) {
    case 0:
        return 1 + next_random(random) % 8;
    case 1:
        return (1 << 20) + next_random(random) % (3 << 20);
    case 2:
    case 3:
        return edges[next_random(random) % 8] - 3 + next_random(random) % 7;
    default:
        return 1 + next_random(random) % 20000;
    }
}

static ra_ucx *open_transport(ra_rendezvous *meeting, const char *transports) {
    ra_ucx_options options = RA_UCX_OPTIONS_INIT;
    ra_ucx *ucx = NULL;
    int machine_ranks = 0;
    options.transports = transports;
    CHECK(ra_ucx_open(ra_rendezvous_rank(meeting), ra_rendezvous_ranks(meeting), ra_rendezvous_allgather, meeting,
                      &options, &ucx, &machine_ranks) == RA_OK);
    CHECK(machine_ranks == ra_rendezvous_ranks(meeting));
    return ucx;
}

static group_target target_of(ra_ucx *ucx) {
    return (group_target){&ra_ucx_ops, ucx, ucx->rank, ucx->ranks, random_size};
}

static void run_rounds(ra_rendezvous *meeting, const char *transports, int rounds, uint64_t seed) {
    static group g, other;
    ra_ucx *ucx = open_transport(meeting, transports), *second = open_transport(meeting, transports);
    group_target first_target = target_of(ucx), second_target = target_of(second);
    for (int round = 0; round < rounds; round++) {
        draw_group(&g, &first_target, &seed);
        draw_group(&other, &second_target, &seed);
        post_group(&g, &first_target);
        post_group(&other, &second_target);
        finish_group(&g, &first_target);
        finish_group(&other, &second_target);
        check_group(&g);
        check_group(&other);
    }
    ra_ucx_ops.destroy(ucx);
    ra_ucx_ops.destroy(second);
}

/* From each rank to the next, messages with one tag: neither they nor their chunks overtake each other. */
static void one_tag(ra_rendezvous *meeting, const char *transports) {
    static const size_t sizes[] = {700000, 100, 1 << 20, 300000, 512001};
    static group g;
    ra_ucx *ucx = open_transport(meeting, transports);
    group_target target = target_of(ucx);
    int next = (ucx->rank + 1) % ucx->ranks, before = (ucx->rank + ucx->ranks - 1) % ucx->ranks;
    g.count = 0;
    for (int i = 0; i < 5 && ucx->ranks > 1; i++) {
        add_message(&g, next, 1, 7, sizes[i], (uint64_t)(100 * i + ucx->rank));
        add_message(&g, before, 0, 7, sizes[i], (uint64_t)(100 * i + before));
    }
    post_group(&g, &target);
    finish_group(&g, &target);
    check_group(&g);
    ra_ucx_ops.destroy(ucx);
}

int main(void) {
    const uint64_t seed = 20240611;
    ra_rendezvous *meeting = meet();
    if (ra_rendezvous_rank(meeting) == 0)
        printf("seed %llu, %d ranks\n", (unsigned long long)seed, ra_rendezvous_ranks(meeting));
    run_rounds(meeting, NULL, 6, seed);
    run_rounds(meeting, "tcp", 6, seed + 1);
    one_tag(meeting, NULL);
    one_tag(meeting, "tcp");
    ra_rendezvous_destroy(meeting);
    return 0;
}
