/* A meeting in a folder. Rank 0 holds a lock for as long as it lasts, so that a second job finds out; it goes with the
 * process. When all have a seat, every round of allgather is one file from each rank:
 *
 *     NAME.KEY.ROUND.RANK    written whole; removed by its owner once everyone has come to the next round
 *     NAME.KEY.left.RANK     this rank needs nothing any more
 *     NAME.KEY.over          why a rank gave up, for those who wait
 */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/status.h"
#include "transport/rendezvous/folder_roll.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long rank 0 waits for the others to leave before it clears the folder up, or leaves that to the next job. */
static const double LEAVE_SECONDS = 2;

/* Without a key nothing tells the processes of two jobs apart. When both are started at about the same time, one of
 * each rank may come first and be taken for a job; the others are there a moment later. */
static const double SETTLE_SECONDS = 0.5;

typedef struct folder_meeting {
    ra_folder folder;
    ra_roll roll;
    int lock;           /* -1: none */
    char job[104];      /* NAME.KEY */
    char lock_name[80]; /* NAME.lock */
    uint64_t round;
} folder_meeting;

typedef struct block_header {
    char magic[8];
    uint64_t bytes;
} block_header;
static const char MAGIC[8] = "ra-blok";

static void block_name(const folder_meeting *f, uint64_t round, int rank, char *name_out) {
    snprintf(name_out, RA_FOLDER_NAME, "%s.%llu.%d", f->job, (unsigned long long)round, rank);
}

static void job_name(const folder_meeting *f, const char *what, char *name_out) {
    snprintf(name_out, RA_FOLDER_NAME, "%s.%s", f->job, what);
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

static ra_status put_block(const folder_meeting *f, int rank, const void *data, size_t bytes) {
    char name[RA_FOLDER_NAME];
    block_header *block = malloc(sizeof *block + bytes);
    if (!block) return ra_fail(RA_ERR_MEMORY, "no memory to bring %zu bytes round", bytes);
    memset(block, 0, sizeof *block);
    memcpy(block->magic, MAGIC, sizeof MAGIC);
    block->bytes = bytes;
    memcpy(block + 1, data, bytes);
    block_name(f, f->round, rank, name);
    ra_status status = ra_folder_write(&f->folder, name, block, sizeof *block + bytes);
    free(block);
    return status;
}

/* block [sizeof header + bytes] */
static ra_status try_block(const folder_meeting *f, int rank, block_header *block, size_t bytes, int *found_out) {
    char name[RA_FOLDER_NAME];
    size_t came = 0;
    block_name(f, f->round, rank, name);
    RA_TRY(ra_folder_read(&f->folder, name, block, sizeof *block + bytes, &came, found_out));
    if (!*found_out) return RA_OK;
    if (came < sizeof *block || memcmp(block->magic, MAGIC, sizeof MAGIC) != 0)
        return ra_fail(RA_ERR_TRANSPORT, "%s/%s is not what a rank writes", f->folder.path, name);
    if (block->bytes != bytes || came != sizeof *block + bytes)
        return ra_fail(RA_ERR_MISMATCH,
                       "rank %d gave %llu bytes where this rank gave %zu: the ranks are at different points", rank,
                       (unsigned long long)block->bytes, bytes);
    return RA_OK;
}

static ra_status check_over(const folder_meeting *f) {
    char name[RA_FOLDER_NAME], why[512];
    size_t bytes = 0;
    int found = 0;
    job_name(f, "over", name);
    RA_TRY(ra_folder_read(&f->folder, name, why, sizeof why - 1, &bytes, &found));
    if (!found) return RA_OK;
    why[bytes < sizeof why - 1 ? bytes : sizeof why - 1] = 0;
    return ra_fail(RA_ERR_PEER, "%s", why);
}

static int has_left(const folder_meeting *f, int rank) {
    char what[32], name[RA_FOLDER_NAME];
    snprintf(what, sizeof what, "left.%d", rank);
    job_name(f, what, name);
    return ra_folder_has(&f->folder, name);
}

static ra_status get_block(const ra_rendezvous *meeting, int rank, block_header *block, size_t bytes, double start) {
    const folder_meeting *f = meeting->self;
    for (int found = 0;;) {
        double waited = ra_clock() - start;
        int left = has_left(f, rank);
        RA_TRY(try_block(f, rank, block, bytes, &found));
        if (found) return RA_OK;
        if (left) return ra_fail(RA_ERR_PEER, "rank %d has left the rendezvous", rank);
        RA_TRY(check_over(f));
        if (waited > meeting->timeout_seconds)
            return ra_fail(RA_ERR_TIMEOUT, "rank %d waited %g s in %s for rank %d", meeting->rank,
                           meeting->timeout_seconds, f->folder.path, rank);
        ra_meeting_nap(waited);
    }
}

static ra_status run_round(const ra_rendezvous *meeting, const void *mine, size_t bytes, unsigned char *all_out) {
    const folder_meeting *f = meeting->self;
    double start = ra_clock();
    block_header *block = malloc(sizeof *block + bytes);
    if (!block) return ra_fail(RA_ERR_MEMORY, "no memory to bring %zu bytes round", bytes);
    ra_status status = put_block(f, meeting->rank, mine, bytes);
    for (int r = 0; r < meeting->ranks && status == RA_OK; r++) {
        if (r == meeting->rank) {
            memcpy(all_out + (size_t)r * bytes, mine, bytes);
            continue;
        }
        status = get_block(meeting, r, block, bytes, start);
        if (status == RA_OK) memcpy(all_out + (size_t)r * bytes, block + 1, bytes);
    }
    free(block);
    return status;
}

static void give_up(const ra_rendezvous *meeting) {
    const folder_meeting *f = meeting->self;
    char name[RA_FOLDER_NAME], why[512], before[512];
    snprintf(before, sizeof before, "%s", ra_last_error());
    snprintf(why, sizeof why, "rank %d gave up: %.400s", meeting->rank, before);
    job_name(f, "over", name);
    if (!ra_folder_has(&f->folder, name)) ra_folder_write(&f->folder, name, why, strlen(why));
    ra_fail(RA_OK, "%s", before);
}

/* Everyone who has written a block of this round has read all those of the one before. */
static ra_status allgather(ra_rendezvous *meeting, const void *mine, size_t bytes, void *all_out) {
    folder_meeting *f = meeting->self;
    char name[RA_FOLDER_NAME];
    ra_status status = run_round(meeting, mine, bytes, all_out);
    if (status != RA_OK) {
        give_up(meeting);
        return status;
    }
    if (f->round > 0) {
        block_name(f, f->round - 1, meeting->rank, name);
        ra_folder_remove(&f->folder, name);
    }
    f->round++;
    return RA_OK;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

static int all_have_left(const ra_rendezvous *meeting) {
    const folder_meeting *f = meeting->self;
    double start = ra_clock();
    for (int r = 1; r < meeting->ranks;) {
        double waited = ra_clock() - start;
        if (has_left(f, r))
            r++;
        else if (waited > LEAVE_SECONDS)
            return 0;
        else
            ra_meeting_nap(waited);
    }
    return 1;
}

static void destroy(ra_rendezvous *meeting) {
    folder_meeting *f = meeting->self;
    char what[32], name[RA_FOLDER_NAME];
    snprintf(what, sizeof what, "left.%d", meeting->rank);
    job_name(f, what, name);
    if (f->job[0] && !meeting->failed && meeting->rank > 0) ra_folder_write(&f->folder, name, "", 0);
    if (f->job[0] && !meeting->failed && meeting->rank == 0 && all_have_left(meeting)) ra_roll_clear(&f->roll, 1);
    if (f->lock >= 0) {
        ra_folder_remove(&f->folder, f->lock_name);
        close(f->lock);
    }
    ra_folder_close(&f->folder);
    free(f);
}

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

static void make_names(folder_meeting *f) {
    const char *key = getenv("RINGATTN_JOB_KEY"), *use = "the name of a job in a folder";
    unsigned char digest[RA_SHA256_BYTES];
    char hex[33] = "job";
    f->roll.settle_seconds = f->roll.ranks > 1 ? SETTLE_SECONDS : 0;
    if (key && *key) {
        f->roll.settle_seconds = 0;
        ra_hmac(key, strlen(key), use, strlen(use), digest);
        ra_meeting_hex(digest, hex);
    }
    snprintf(f->roll.prefix, sizeof f->roll.prefix, "ringattn-%s", hex);
    snprintf(f->lock_name, sizeof f->lock_name, "%s.lock", f->roll.prefix);
}

/* A second rank 0 also tells the first, which may have cards of both jobs before it. */
static ra_status take_lock(folder_meeting *f) {
    char name[RA_FOLDER_NAME];
    RA_TRY(ra_folder_lock(&f->folder, f->lock_name, &f->lock));
    if (f->lock >= 0) return RA_OK;
    snprintf(name, sizeof name, "%s.conflict", f->roll.prefix);
    ra_folder_write(&f->folder, name, "", 0);
    return ra_fail(RA_ERR_MISMATCH,
                   "another job is meeting in %s: give each a folder of its own, or a RINGATTN_JOB_KEY",
                   f->folder.path);
}

static ra_status meet(folder_meeting *f) {
    char key[2 * RA_NONCE_BYTES + 1];
    if (f->roll.rank == 0) {
        RA_TRY(take_lock(f));
        RA_TRY(ra_roll_call(&f->roll));
    } else {
        RA_TRY(ra_roll_answer(&f->roll));
    }
    ra_meeting_hex(f->roll.key, key);
    snprintf(f->job, sizeof f->job, "%s.%s", f->roll.prefix, key);
    return RA_OK;
}

ra_status ra_rendezvous_folder(const char *path, int rank, int ranks, double timeout_seconds,
                               ra_rendezvous **rendezvous_out) {
    ra_rendezvous *meeting = NULL;
    if (!rendezvous_out) return ra_refuse("rendezvous_out is NULL");
    RA_TRY(ra_meeting_make(rank, ranks, timeout_seconds, &meeting));
    folder_meeting *f = calloc(1, sizeof *f);
    ra_status status = f ? ra_folder_open(path, &f->folder) : ra_fail(RA_ERR_MEMORY, "no memory for a rendezvous");
    if (status != RA_OK) {
        free(f);
        free(meeting);
        return status;
    }
    f->lock = -1;
    f->roll =
        (ra_roll){.folder = &f->folder, .rank = rank, .ranks = ranks, .timeout_seconds = meeting->timeout_seconds};
    make_names(f);
    meeting->self = f;
    meeting->allgather = allgather;
    meeting->destroy = destroy;
    status = meet(f);
    if (status == RA_OK)
        *rendezvous_out = meeting;
    else
        ra_rendezvous_destroy(meeting);
    return status;
}
