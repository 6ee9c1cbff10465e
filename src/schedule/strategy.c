/* The strategies: one entry each, with all that anybody asks of a strategy. */
#include "schedule/builder.h"

#include <stdio.h>
#include <string.h>

/* A step per rank; in the backward pass one more, in which the last gradients go home. */
static int steps_of_round(int ranks, ra_pass pass) {
    return ranks + (pass == RA_BACKWARD && ranks > 1);
}

/* One step gathers, one computes with what came; backward, as the ring. */
static int steps_of_allgather(int ranks, ra_pass pass) {
    return ranks == 1 ? 1 : pass == RA_FORWARD ? 2 : ranks + 1;
}

/* In both passes the last results go home in a step of their own. */
static int steps_of_passq(int ranks, ra_pass pass) {
    (void)pass;
    return ranks + (ranks > 1);
}

/* What stays where it was written when keys and values go to the ranks that need them, and sums around and home. */
enum { TRAVELLING = 1 << RA_CARGO_KV | 1 << RA_CARGO_GRAD };

static const ra_strategy_entry strategies[] = {
    {RA_STRATEGY_AUTO, "auto", NULL, NULL, 0, NULL},
    {RA_STRATEGY_RING, "ring", steps_of_round, ra_make_ring, TRAVELLING, ra_ring_volume},
    {RA_STRATEGY_PAIRWISE, "pairwise", steps_of_round, ra_make_pairwise, 0, ra_pairwise_volume},
    {RA_STRATEGY_ALLGATHER, "allgather", steps_of_allgather, ra_make_allgather, TRAVELLING, ra_allgather_volume},
    {RA_STRATEGY_PASSQ, "passq", steps_of_passq, ra_make_passq, 0, ra_passq_volume},
};

enum { STRATEGIES = sizeof strategies / sizeof *strategies };

const ra_strategy_entry *ra_strategy_find(ra_strategy strategy) {
    for (int i = 0; i < STRATEGIES; i++)
        if (strategies[i].strategy == strategy) return &strategies[i];
    return NULL;
}

const char *ra_strategy_name(ra_strategy strategy) {
    const ra_strategy_entry *entry = ra_strategy_find(strategy);
    return entry ? entry->name : NULL;
}

ra_status ra_strategy_parse(const char *name, ra_strategy *strategy_out) {
    char names[128] = "";
    if (!strategy_out) return ra_refuse("strategy_out is NULL");
    for (int i = 0; i < STRATEGIES; i++) {
        size_t used = strlen(names);
        if (name && strcmp(name, strategies[i].name) == 0) {
            *strategy_out = strategies[i].strategy;
            return RA_OK;
        }
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", strategies[i].name);
    }
    return ra_refuse("'%s' is no strategy; choose one of: %s", name ? name : "NULL", names);
}
