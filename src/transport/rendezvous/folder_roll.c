#include "transport/rendezvous/folder_roll.h"

#include "base/clock.h"
#include "base/entropy.h"
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

/* How long rank 0 stays at most to tell the others that there is no job. */
static const double REFUSE_SECONDS = 0.8;

typedef enum verdict { SEATED, REFUSED, WAITING } verdict;

/* Followed by `count` numbers: of the ranks in order, or, as long as they have no seats, of all who came. */
typedef struct seats {
    char magic[8];
    unsigned char key[RA_NONCE_BYTES];
    int32_t verdict, count;
    char why[WHY]; /* REFUSED; WAITING: for whom */
} seats;

static void name_of(const ra_roll *roll, const char *what, char *name_out) {
    snprintf(name_out, RA_FOLDER_NAME, "%s.%s", roll->prefix, what);
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

/* The cards of one look. */
typedef struct pile {
    const ra_roll *roll;
    join_card *cards;
    int count, capacity;
    unsigned char *seen; /* [ranks]: ranks that have been there in any look */
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

/* RA_OK with *absent_out -1: every rank has one card. Else a rank that has none; one that never had before one that
 * left. */
static ra_status check_pile(const pile *p, int *absent_out) {
    int ranks = p->roll->ranks;
    unsigned char *come = calloc((size_t)ranks, 1);
    ra_status status = come ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
    for (int i = 0; i < p->count && status == RA_OK; i++) {
        const join_card *c = &p->cards[i];
        if (c->ranks != ranks || c->rank < 1 || c->rank >= ranks)
            status = ra_fail(RA_ERR_MISMATCH, "rank %d was started as one of %d ranks, rank 0 as one of %d",
                             (int)c->rank, (int)c->ranks, ranks);
        else if (come[c->rank]++)
            status =
                ra_fail(RA_ERR_MISMATCH,
                        "two processes say that they are rank %d: two jobs meet in %s; give each a folder of its own, "
                        "or a RINGATTN_JOB_KEY",
                        (int)c->rank, p->roll->folder->path);
        else
            p->seen[c->rank] = 1;
    }
    *absent_out = -1;
    for (int r = ranks - 1; status == RA_OK && r > 0; r--)
        if (!come[r] && (*absent_out < 0 || !p->seen[r] || p->seen[*absent_out])) *absent_out = r;
    free(come);
    return status;
}

static ra_status check_conflict(const ra_roll *roll) {
    char name[RA_FOLDER_NAME];
    name_of(roll, "conflict", name);
    if (!ra_folder_has(roll->folder, name)) return RA_OK;
    return ra_fail(
        RA_ERR_MISMATCH,
        "another rank 0 came to %s: two jobs meet there; give each a folder of its own, or a RINGATTN_JOB_KEY",
        roll->folder->path);
}

static ra_status publish(const ra_roll *roll, const pile *p, verdict what, const char *why) {
    int count = what == SEATED ? roll->ranks : p->count;
    size_t bytes = sizeof(seats) + (size_t)count * RA_NONCE_BYTES;
    char name[RA_FOLDER_NAME];
    seats *list = calloc(1, bytes);
    if (!list) return ra_fail(RA_ERR_MEMORY, "no memory for the seats of %d ranks", count);
    unsigned char *nonces = (unsigned char *)(list + 1);
    memcpy(list->magic, MAGIC, sizeof MAGIC);
    memcpy(list->key, roll->key, sizeof list->key);
    list->verdict = what;
    list->count = count;
    snprintf(list->why, sizeof list->why, "%.*s", (int)sizeof list->why - 1, why);
    for (int i = 0; i < p->count; i++) {
        int seat = what == SEATED ? p->cards[i].rank : i;
        memcpy(nonces + (size_t)seat * RA_NONCE_BYTES, p->cards[i].nonce, RA_NONCE_BYTES);
    }
    name_of(roll, "seats", name);
    ra_status status = ra_folder_write(roll->folder, name, list, bytes);
    free(list);
    return status;
}

/* For those who came and will give up before rank 0 does. */
static ra_status say_whom(const ra_roll *roll, const pile *p, int absent, int *said_count, int *said_absent) {
    char why[64];
    if (p->count == *said_count && absent == *said_absent) return RA_OK;
    *said_count = p->count;
    *said_absent = absent;
    snprintf(why, sizeof why, "rank %d has not come", absent);
    return publish(roll, p, WAITING, why);
}

static ra_status collect(const ra_roll *roll, pile *p) {
    double start = ra_clock(), complete = start;
    int said_count = 0, said_absent = -1;
    char prefix[RA_FOLDER_NAME];
    name_of(roll, "join.", prefix);
    for (int absent = 0;;) {
        double now = ra_clock(), waited = now - start;
        p->count = 0;
        RA_TRY(ra_folder_visit(roll->folder, prefix, take_card, p));
        RA_TRY(check_conflict(roll));
        RA_TRY(check_pile(p, &absent));
        if (absent >= 0) RA_TRY(say_whom(roll, p, absent, &said_count, &said_absent));
        if (absent >= 0)
            complete = now;
        else if (now - complete >= roll->settle_seconds)
            return RA_OK;
        if (absent >= 0 && waited > roll->timeout_seconds)
            return ra_fail(RA_ERR_TIMEOUT, "rank 0 of %d waited %g s in %s for rank %d, which did not come",
                           roll->ranks, roll->timeout_seconds, roll->folder->path, absent);
        ra_meeting_nap(waited);
    }
}

/* Tells everyone who came, and those who come a moment later, before another rank 0 can clear the answer away: else
 * those who have read it would leave, and the rest of both jobs might make one. */
static void refuse_all(const ra_roll *roll, pile *p, const char *why) {
    double start = ra_clock(), quiet = start;
    char prefix[RA_FOLDER_NAME];
    name_of(roll, "join.", prefix);
    for (;;) {
        double now = ra_clock();
        p->count = 0;
        if (ra_folder_visit(roll->folder, prefix, take_card, p) != RA_OK) return;
        if (p->count > 0) {
            quiet = now;
            if (publish(roll, p, REFUSED, why) != RA_OK) return;
        }
        if ((p->count == 0 && now - quiet >= roll->settle_seconds) || now - start > REFUSE_SECONDS) return;
        ra_meeting_nap(now - start);
    }
}

ra_status ra_roll_call(ra_roll *roll) {
    pile p = {.roll = roll, .capacity = 2 * roll->ranks + 16};
    RA_TRY(ra_random_bytes(roll->key, sizeof roll->key));
    RA_TRY(ra_roll_clear(roll, 0));
    p.cards = calloc((size_t)p.capacity, sizeof *p.cards);
    p.seen = calloc((size_t)roll->ranks, 1);
    ra_status status = RA_OK;
    if (!p.cards || !p.seen) status = ra_fail(RA_ERR_MEMORY, "no memory for the cards of %d ranks", roll->ranks);
    if (status == RA_OK) status = collect(roll, &p);
    if (status == RA_OK) {
        status = publish(roll, &p, SEATED, "");
    } else {
        char why[512];
        snprintf(why, sizeof why, "%s", ra_last_error());
        if (p.cards && p.seen) refuse_all(roll, &p, why);
        ra_fail(status, "%s", why);
    }
    free(p.cards);
    free(p.seen);
    return status;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

typedef struct answer {
    seats list;
    unsigned char nonces[];
} answer;

static int has_number(const answer *a, int seat, const unsigned char *nonce) {
    return memcmp(a->nonces + (size_t)seat * RA_NONCE_BYTES, nonce, RA_NONCE_BYTES) == 0;
}

static int is_for(const ra_roll *roll, const unsigned char *nonce, const answer *a) {
    if (a->list.verdict == SEATED) return a->list.count == roll->ranks && has_number(a, roll->rank, nonce);
    for (int seat = 0; seat < a->list.count; seat++)
        if (has_number(a, seat, nonce)) return 1;
    return 0;
}

/* Whether there is an answer, of this time and for this process. */
static ra_status read_answer(const ra_roll *roll, const unsigned char *nonce, answer *a, size_t capacity,
                             int *found_out, int *mine_out) {
    const seats *list = &a->list;
    char name[RA_FOLDER_NAME];
    size_t bytes = 0;
    *mine_out = 0;
    name_of(roll, "seats", name);
    RA_TRY(ra_folder_read(roll->folder, name, a, capacity, &bytes, found_out));
    if (!*found_out || bytes > capacity || bytes < sizeof *list) return RA_OK;
    if (memcmp(list->magic, MAGIC, sizeof MAGIC) != 0 || list->count < 0) return RA_OK;
    if (bytes != sizeof *list + (size_t)list->count * RA_NONCE_BYTES) return RA_OK;
    a->list.why[WHY - 1] = 0;
    *mine_out = is_for(roll, nonce, a);
    return RA_OK;
}

static ra_status too_late(const ra_roll *roll, const answer *a, int found, int mine) {
    return ra_fail(RA_ERR_TIMEOUT, "rank %d of %d waited %g s in %s for rank 0, which %s%s", roll->rank, roll->ranks,
                   roll->timeout_seconds, roll->folder->path,
                   mine    ? "waits as well: "
                   : found ? "did not come; a job met there without this process: is it another one, or an old one?"
                           : "did not come",
                   mine ? a->list.why : "");
}

static ra_status await_seat(ra_roll *roll, const join_card *card, const char *card_name, answer *a, size_t capacity) {
    double start = ra_clock();
    for (;;) {
        double waited = ra_clock() - start;
        int found = 0, mine = 0;
        if (!ra_folder_has(roll->folder, card_name))
            RA_TRY(ra_folder_write(roll->folder, card_name, card, sizeof *card));
        RA_TRY(read_answer(roll, card->nonce, a, capacity, &found, &mine));
        if (mine && a->list.verdict == REFUSED) return ra_fail(RA_ERR_PEER, "rank 0 refused: %s", a->list.why);
        if (mine && a->list.verdict == SEATED) {
            memcpy(roll->key, a->list.key, sizeof roll->key);
            return RA_OK;
        }
        if (waited > roll->timeout_seconds) return too_late(roll, a, found, mine);
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

/* ---- clearing away ----------------------------------------------------------------------------------------------- */

static void remove_whole(void *user, const char *name) {
    const ra_roll *roll = user;
    if (strcmp(name + strlen(roll->prefix), ".lock") != 0 && !strstr(name, ".part"))
        ra_folder_remove(roll->folder, name);
}

static void remove_unfinished(void *user, const char *name) {
    const ra_roll *roll = user;
    if (strstr(name, ".part")) ra_folder_remove(roll->folder, name);
}

ra_status ra_roll_clear(const ra_roll *roll, int all_left) {
    char prefix[RA_FOLDER_NAME];
    name_of(roll, "", prefix);
    RA_TRY(ra_folder_visit(roll->folder, prefix, remove_whole, (void *)roll));
    return all_left ? ra_folder_visit(roll->folder, prefix, remove_unfinished, (void *)roll) : RA_OK;
}
