#include "ranks/agreement.h"

#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_WORK = -1 /* in the place of a status */ };

/* By thread, as each in-process rank has one. */
static _Thread_local int failed_together;

int agreement_failed(void) {
    return failed_together;
}

int agreement_lost(ra_status status) {
    return status == RA_ERR_TIMEOUT || status == RA_ERR_PEER || status == RA_ERR_TRANSPORT || status == RA_ERR_BROKEN;
}

/* The others wait for an exchange that this rank cannot take part in. */
static ra_status absent(const char *reason) {
    return ra_fail(RA_ERR_BROKEN, "%s", reason);
}

/* Whether every rank came with the sentence of the culprit: then it is nobody's in particular. */
static int all_say(const char *sentences, int ranks, const char *sentence) {
    for (int r = 0; r < ranks; ++r)
        if (strcmp(sentences + (size_t)r * AGREEMENT_BYTES, sentence) != 0) return 0;
    return 1;
}

/* Some rank has failed: takes over the sentence of the first. statuses [ranks]. */
static ra_status share_sentence(ra_comm *comm, const int *statuses, const char *mine, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm), culprit = 0;
    while (statuses[culprit] == RA_OK) ++culprit;
    char *sentences = malloc((size_t)ranks * AGREEMENT_BYTES);
    if (!sentences) return absent("no memory for the sentences of the ranks");
    ra_status status = ra_comm_allgather(comm, mine, AGREEMENT_BYTES, sentences, timeout_seconds);
    if (status == RA_OK) {
        const char *said = sentences + (size_t)culprit * AGREEMENT_BYTES;
        int named = strncmp(said, "rank ", 5) == 0 || all_say(sentences, ranks, said);
        status = named ? ra_fail((ra_status)statuses[culprit], "%s", said)
                       : ra_fail((ra_status)statuses[culprit], "rank %d: %s", culprit, said);
    }
    free(sentences);
    return status;
}

/* One round: statuses_out [ranks]. */
static ra_status exchange(ra_comm *comm, int mine, double timeout_seconds, int *statuses_out) {
    return ra_comm_allgather(comm, &mine, sizeof mine, statuses_out, timeout_seconds);
}

static int count_of(const int *statuses, int ranks, int value) {
    int count = 0;
    for (int r = 0; r < ranks; ++r) count += statuses[r] == value;
    return count;
}

/* Rounds until no rank is at work any more. */
ra_status agreement_reach(ra_comm *comm, ra_status mine, const char *sentence, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm);
    int *statuses = malloc((size_t)ranks * sizeof *statuses);
    if (!statuses) return absent("no memory for the statuses of the ranks");
    ra_status status;
    do status = exchange(comm, mine, timeout_seconds, statuses);
    while (status == RA_OK && count_of(statuses, ranks, AT_WORK));
    if (status == RA_OK && count_of(statuses, ranks, RA_OK) < ranks)
        status = share_sentence(comm, statuses, sentence, timeout_seconds);
    free(statuses);
    failed_together = status != RA_OK && !agreement_lost(status);
    return status;
}

ra_status crew_agree(ra_comm *comm, ra_status mine, double timeout_seconds) {
    char sentence[AGREEMENT_BYTES] = "";
    if (mine != RA_OK) snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    return agreement_lost(mine) ? mine : agreement_reach(comm, mine, sentence, timeout_seconds);
}

ra_status crew_at_work(ra_comm *comm, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm);
    int *statuses = malloc((size_t)ranks * sizeof *statuses);
    if (!statuses) return absent("no memory for the statuses of the ranks");
    ra_status status = exchange(comm, AT_WORK, timeout_seconds, statuses);
    free(statuses);
    return status;
}
