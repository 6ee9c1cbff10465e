#include "transport/rendezvous/folder_roll.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = "ra-roll";
enum { WHY = 256 };

typedef struct join_card {
    char magic[8];
    int32_t rank, ranks;
    unsigned char nonce[RA_NONCE_BYTES];
} join_card;

/* Followed by `count` numbers: of the ranks in order, or, of a job that is refused, of all who came. */
typedef struct seats {
    char magic[8];
    unsigned char key[RA_NONCE_BYTES];
    int32_t refused, count;
    char why[WHY];
} seats;

static void name_of(const ra_roll *roll, const char *what, char *name_out) {
    snprintf(name_out, RA_FOLDER_NAME, "%s.%s", roll->prefix, what);
}

/* ---- rank 0 -------------------------------------------------------------------------------------------------------- */

/* The cards of one look. */
typedef struct pile {
    const ra_roll *roll;
    join_card *cards;
    int count, capacity;
} pile;

static void take_card(void *user, const char *name) {
    pile *p = user;
    join_card card;
    size_t bytes;
    int found = 0;
    if (strstr(name, ".part")) return;
    if (ra_folder_read(p->roll->folder, name, &card, sizeof card, &bytes, &found) != RA_OK || !found) return;
    if (bytes != sizeof card || memcmp(card.magic, MAGIC, sizeof MAGIC) != 0 || p->count == p->capacity) return;
    p->cards[p->count++] = card;
}

/* RA_OK with *absent_out -1: every rank has one card. */
static ra_status check_pile(const pile *p, int *absent_out) {
    int ranks = p->roll->ranks;
    unsigned char *come = calloc((size_t)ranks, 1);
    ra_status status = come ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
    for (int i = 0; i < p->count && status == RA_OK; i++) {
        const join_card *c = &p->cards[i];
        if (c->ranks != ranks || c->rank < 1 || c->rank >= ranks)
            status = ra_fail(RA_ERR_MISMATCH, "rank %d was started as one of %d ranks, rank 0 as one of %d", (int)c->rank,
                             (int)c->ranks, ranks);
        else if (come[c->rank]++)
            status = ra_fail(RA_ERR_MISMATCH,
                             "two processes say that they are rank %d: two jobs meet in %s; give each a folder of its own, "
                             "or a RINGATTN_JOB_KEY",
                             (int)c->rank, p->roll->folder->path);
    }
    *absent_out = -1;
    for (int r = ranks - 1; status == RA_OK && r > 0; r--)
        if (!come[r]) *absent_out = r;
    free(come);
    return status;
}

static ra_status check_conflict(const ra_roll *roll) {
    char name[RA_FOLDER_NAME];
    name_of(roll, "conflict", name);
    if (!ra_folder_has(roll->folder, name)) return RA_OK;
    return ra_fail(RA_ERR_MISMATCH,
                   "another rank 0 came to %s: two jobs meet there; give each a folder of its own, or a RINGATTN_JOB_KEY",
                   roll->folder->path);
}

static ra_status publish(const ra_roll *roll, const pile *p, const char *why) {
    int count = why ? p->count : roll->ranks;
    size_t bytes = sizeof(seats) + (size_t)count * RA_NONCE_BYTES;
    char name[RA_FOLDER_NAME];
    seats *list = calloc(1, bytes);
    if (!list) return ra_fail(RA_ERR_MEMORY, "no memory for the seats of %d ranks", count);
    unsigned char *nonces = (unsigned char *)(list + 1);
    memcpy(list->magic, MAGIC, sizeof MAGIC);
    memcpy(list->key, roll->key, sizeof list->key);
    list->refused = why != NULL;
    list->count = count;
    if (why) snprintf(list->why, sizeof list->why, "%s", why);
    for (int i = 0; i < p->count; i++) {
        int seat = why ? i : p->cards[i].rank;
        memcpy(nonces + (size_t)seat * RA_NONCE_BYTES, p->cards[i].nonce, RA_NONCE_BYTES);
    }
    name_of(roll, "seats", name);
    ra_status status = ra_folder_write(roll->folder, name, list, bytes);
    free(list);
    return status;
}

static ra_status collect(const ra_roll *roll, pile *p) {
    double start = ra_clock(), complete = start;
    char prefix[RA_FOLDER_NAME];
    name_of(roll, "join.", prefix);
    for (int absent = 0;;) {
        double now = ra_clock(), waited = now - start;
        p->count = 0;
        RA_TRY(ra_folder_visit(roll->folder, prefix, take_card, p));
        RA_TRY(check_conflict(roll));
        RA_TRY(check_pile(p, &absent));
        if (absent >= 0) complete = now;
        else if (now - complete >= roll->settle_seconds) return RA_OK;
        if (absent >= 0 && waited > roll->timeout_seconds)
            return ra_fail(RA_ERR_TIMEOUT, "rank 0 of %d waited %g s in %s for rank %d, which did not come", roll->ranks,
                           roll->timeout_seconds, roll->folder->path, absent);
        ra_meeting_nap(waited);
    }
}

ra_status ra_roll_call(ra_roll *roll) {
    pile p = {.roll = roll, .capacity = 2 * roll->ranks + 16};
    RA_TRY(ra_random_bytes(roll->key, sizeof roll->key));
    RA_TRY(ra_roll_clear(roll, 0));
    p.cards = calloc((size_t)p.capacity, sizeof *p.cards);
    if (!p.cards) return ra_fail(RA_ERR_MEMORY, "no memory for the cards of %d ranks", roll->ranks);
    ra_status status = collect(roll, &p);
    if (status == RA_OK) {
        status = publish(roll, &p, NULL);
    } else {
        char why[512];
        snprintf(why, sizeof why, "%s", ra_last_error());
        publish(roll, &p, why);
        ra_fail(status, "%s", why);
    }
    free(p.cards);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------------------------------ */

typedef struct answer {
    seats list;
    unsigned char nonces[];
} answer;

static int has_number(const answer *a, int seat, const unsigned char *nonce) {
    return memcmp(a->nonces + (size_t)seat * RA_NONCE_BYTES, nonce, RA_NONCE_BYTES) == 0;
}

/* *seated_out: 1 with this job's key; 0 when the answer is not for this process. A refusal of it is an error. */
static ra_status read_answer(const ra_roll *roll, const unsigned char *nonce, const answer *a, size_t bytes,
                             unsigned char *key_out, int *seated_out) {
    const seats *list = &a->list;
    *seated_out = 0;
    if (bytes < sizeof *list || memcmp(list->magic, MAGIC, sizeof MAGIC) != 0 || list->count < 0) return RA_OK;
    if (bytes != sizeof *list + (size_t)list->count * RA_NONCE_BYTES) return RA_OK;
    if (!list->refused) {
        *seated_out = list->count == roll->ranks && has_number(a, roll->rank, nonce);
        memcpy(key_out, list->key, sizeof list->key);
        return RA_OK;
    }
    for (int seat = 0; seat < list->count; seat++)
        if (has_number(a, seat, nonce)) return ra_fail(RA_ERR_PEER, "rank 0 refused: %.*s", WHY, list->why);
    return RA_OK;
}

static ra_status await_seat(ra_roll *roll, const join_card *mine, const char *card_name, answer *a, size_t capacity) {
    double start = ra_clock();
    char name[RA_FOLDER_NAME];
    int other = 0;
    name_of(roll, "seats", name);
    for (;;) {
        double waited = ra_clock() - start;
        size_t bytes = 0;
        int found = 0, seated = 0;
        if (!ra_folder_has(roll->folder, card_name)) RA_TRY(ra_folder_write(roll->folder, card_name, mine, sizeof *mine));
        RA_TRY(ra_folder_read(roll->folder, name, a, capacity, &bytes, &found));
        if (found && bytes <= capacity) RA_TRY(read_answer(roll, mine->nonce, a, bytes, roll->key, &seated));
        if (seated) return RA_OK;
        other = found;
        if (waited > roll->timeout_seconds)
            return ra_fail(RA_ERR_TIMEOUT, "rank %d of %d waited %g s in %s for rank 0, %s", roll->rank, roll->ranks,
                           roll->timeout_seconds, roll->folder->path,
                           other ? "and a job met there without this process: is it another one, or an old one?"
                                 : "which did not come");
        ra_meeting_nap(waited);
    }
}

ra_status ra_roll_answer(ra_roll *roll) {
    join_card mine = {.rank = roll->rank, .ranks = roll->ranks};
    char nonce[2 * RA_NONCE_BYTES + 1], name[RA_FOLDER_NAME];
    size_t capacity = sizeof(answer) + (2 * (size_t)roll->ranks + 16) * RA_NONCE_BYTES;
    memcpy(mine.magic, MAGIC, sizeof MAGIC);
    RA_TRY(ra_random_bytes(mine.nonce, sizeof mine.nonce));
    ra_meeting_hex(mine.nonce, nonce);
    snprintf(name, sizeof name, "%s.join.%d.%s", roll->prefix, roll->rank, nonce);
    answer *a = calloc(1, capacity);
    if (!a) return ra_fail(RA_ERR_MEMORY, "no memory for the seats of %d ranks", roll->ranks);
    ra_status status = await_seat(roll, &mine, name, a, capacity);
    free(a);
    ra_folder_remove(roll->folder, name);
    return status;
}

/* ---- clearing away ---------------------------------------------------------------------------------------------------- */

static void remove_whole(void *user, const char *name) {
    const ra_roll *roll = user;
    if (strcmp(name + strlen(roll->prefix), ".lock") != 0 && !strstr(name, ".part")) ra_folder_remove(roll->folder, name);
}

static void remove_part(void *user, const char *name) {
    const ra_roll *roll = user;
    if (strstr(name, ".part")) ra_folder_remove(roll->folder, name);
}

ra_status ra_roll_clear(const ra_roll *roll, int all_left) {
    char prefix[RA_FOLDER_NAME];
    name_of(roll, "", prefix);
    RA_TRY(ra_folder_visit(roll->folder, prefix, remove_whole, (void *)roll));
    return all_left ? ra_folder_visit(roll->folder, prefix, remove_part, (void *)roll) : RA_OK;
}
