#include "ranks/request.h"

#include "cli.h"

#include <stdlib.h>

/* The options that name files of rows, of which every rank reads or writes its own, and the report, which rank 0
 * writes for all of them. */
static const char *const names[] = {"--out", "--lse", "--dout", "--dq", "--dk", "--dv", "--report"};
enum { NAMES = sizeof names / sizeof *names, REPORT = NAMES - 1 };

/* A bit for each that was given. */
static unsigned given(const cli_options *o) {
    const char *const paths[NAMES] = {o->out, o->lse, o->dout, o->dq, o->dk, o->dv, o->report};
    unsigned bits = 0;
    for (int i = 0; i < NAMES; ++i) bits |= (unsigned)(paths[i] != NULL) << i;
    return bits;
}

static int has(unsigned bits, int i) {
    return (bits >> i & 1) != 0;
}

/* all [ranks]. */
static ra_status compare(const unsigned *all, int ranks) {
    for (int r = 1; r < ranks; ++r)
        for (int i = 0; i < NAMES; ++i) {
            int first = has(all[0], i), here = has(all[r], i);
            if (first == here || (i == REPORT && first)) continue;
            CLI_RETURN_REFUSAL("%s: rank %d was asked for it and rank %d was not; give every rank the same files",
                               names[i], first ? 0 : r, first ? r : 0);
        }
    return RA_OK;
}

ra_status request_agree(ra_comm *comm, const cli_options *options, ra_status mine, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm);
    unsigned bits = given(options), *all = malloc((size_t)ranks * sizeof *all);
    if (mine == RA_OK && !all) mine = ra_fail(RA_ERR_MEMORY, "no memory for what %d ranks were asked for", ranks);
    ra_status status = crew_agree(comm, mine, timeout_seconds);
    if (status == RA_OK) status = ra_comm_allgather(comm, &bits, sizeof bits, all, timeout_seconds);
    if (status == RA_OK) status = compare(all, ranks);
    free(all);
    return status;
}
