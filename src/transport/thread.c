/* In-process ranks. A message is one memcpy from the sender's buffer into the receiver's, done by whichever end posts
 * second, outside the lock; neither end posts the next group before both have seen theirs complete.
 *
 *     hub ── lock ──┬── endpoint 0: its group in flight, one mark per message
 *                   ├── endpoint 1
 *                   └── ...
 *
 * A match is claimed under the lock, so that no two threads copy it, and endpoints count the copies that are under way
 * on their memory, so that a rank that gives up can wait for these before its buffers are freed.
 *
 * Groups of device memory are matched in the same way, but whoever comes second only puts the copy on the receiver's
 * transfer stream (link.h), so that a message is done, for the host, as soon as both ends have posted it.
 */
#include "transport/thread.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/comm_state.h"
#include "transport/link.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum mark { MARK_POSTED, MARK_CLAIMED, MARK_DONE, MARK_WRONG_SIZE } mark;

typedef struct endpoint {
    struct hub *hub;
    int rank;
    const ra_message *messages; /* the group in flight */
    mark *marks;                /* [capacity] */
    size_t *arrived;            /* [capacity]: bytes at the other end, where they differ */
    int count, capacity;
    int on_device;     /* the group's memory is the device's */
    int listening;     /* the group is empty: somebody wants to hear whether a peer has given up */
    ra_link link;      /* to the device, where there is one */
    int copies;        /* under way on this rank's memory */
    int lends;         /* its memory may be used by others: it has posted messages without data, and not settled */
    int gone;          /* its comm was destroyed */
    char *parting;     /* why it left; NULL: it did not say */
    double alive_at;   /* on ra_clock(): when it last posted or polled */
    int polling;       /* it is in poll */
    int waits_for;     /* the rank that it polls for with seconds; -1: none */
    double wait_since; /* on ra_clock(): the first such poll of the group */
    pthread_cond_t changed;
    atomic_uint changes; /* of its marks, for whoever asks without the lock */
} endpoint;

typedef struct hub {
    pthread_mutex_t lock;
    int ranks, alive;
    int failed_rank; /* -1: none */
    int borrowers;   /* ranks that are putting work in others' memory on their streams */
    pthread_cond_t returned;
    atomic_int has_device; /* a rank has one, so that its thread computes nothing itself */
    char reason[512];
    endpoint *endpoints;
} hub;

/* Peers that put work on a device come within so many seconds of each other, mostly: sooner than a thread that sleeps
 * is woken. */
static const double SOON = 50e-6;

/* What is done under the lock is short, calls of a device's driver at most; a thread that slept for it would be woken
 * later than it needs to be. Where ranks compute on the CPU, others have something to do meanwhile. */
static void take_lock(hub *h) {
    if (pthread_mutex_trylock(&h->lock) == 0) return;
    for (double end = ra_clock() + SOON; atomic_load(&h->has_device) && ra_clock() < end;) {
        sched_yield();
        if (pthread_mutex_trylock(&h->lock) == 0) return;
    }
    pthread_mutex_lock(&h->lock);
}

/* ---- matching --------------------------------------------------------------------------------------------------- */

/* The first message of `other` that is the other end of message; -1 when it is not posted yet. */
static int find_match(const endpoint *other, int rank, const ra_message *message) {
    for (int i = 0; i < other->count; i++) {
        const ra_message *m = &other->messages[i];
        if (m->peer == rank && m->tag == message->tag && !m->is_send == !!message->is_send &&
            other->marks[i] == MARK_POSTED)
            return i;
    }
    return -1;
}

static void set_marks(endpoint *a, int i, endpoint *b, int j, mark m) {
    a->marks[i] = b->marks[j] = m;
    atomic_fetch_add(&a->changes, 1);
    atomic_fetch_add(&b->changes, 1);
    pthread_cond_broadcast(&a->changed);
    pthread_cond_broadcast(&b->changed);
}

/* Under the lock, which is dropped while the bytes are copied. Putting a copy on a stream takes no time. */
static ra_status move(hub *h, endpoint *me, int i, endpoint *other, int j) {
    const ra_message *mine = &me->messages[i], *theirs = &other->messages[j];
    if (me->on_device != other->on_device)
        return ra_fail(RA_ERR_TRANSPORT, "rank %d and rank %d have their message in memory of different kinds",
                       me->rank, other->rank);
    if (mine->bytes != theirs->bytes) {
        me->arrived[i] = theirs->bytes;
        other->arrived[j] = mine->bytes;
        set_marks(me, i, other, j, MARK_WRONG_SIZE);
        return RA_OK;
    }
    const ra_message *from = mine->is_send ? mine : theirs, *to = mine->is_send ? theirs : mine;
    if (!from->data != !to->data)
        return ra_fail(RA_ERR_TRANSPORT, "rank %d and rank %d do not agree whether their message is copied", me->rank,
                       other->rank);
    if (!me->on_device && !to->data) {
        set_marks(me, i, other, j, MARK_DONE);
        return RA_OK;
    }
    if (me->on_device) {
        RA_TRY(mine->is_send ? ra_link_move(&me->link, i, from, &other->link, j, to)
                             : ra_link_move(&other->link, j, from, &me->link, i, to));
        set_marks(me, i, other, j, MARK_DONE);
        return RA_OK;
    }
    set_marks(me, i, other, j, MARK_CLAIMED);
    other->copies++;
    pthread_mutex_unlock(&h->lock);
    memcpy(to->data, from->data, from->bytes);
    take_lock(h);
    other->copies--;
    set_marks(me, i, other, j, MARK_DONE);
    return RA_OK;
}

/* ---- signs of life ----------------------------------------------------------------------------------------------- */

/* What a rank does, for those who ask: under the lock. peer: that it waits for, or -1. */
static void note(endpoint *me, int polling, int peer) {
    me->alive_at = ra_clock();
    me->polling = polling;
    if (peer >= 0 && me->waits_for < 0) me->wait_since = me->alive_at;
    me->waits_for = peer;
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    const endpoint *me = self, *other = &me->hub->endpoints[peer];
    take_lock(me->hub);
    double now = ra_clock();
    *sign_out = (ra_sign){.silent = other->polling ? 0 : now - other->alive_at,
                          .waits_for = other->waits_for,
                          .waited = other->waits_for < 0 ? 0 : now - other->wait_since};
    pthread_mutex_unlock(&me->hub->lock);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static ra_status peer_failed(const hub *h) {
    return ra_fail(RA_ERR_PEER, "rank %d gave up: %s", h->failed_rank, h->reason);
}

static int reserve(endpoint *e, int count) {
    if (count <= e->capacity) return 1;
    mark *marks = realloc(e->marks, (size_t)count * sizeof *marks);
    if (marks) e->marks = marks;
    size_t *arrived = realloc(e->arrived, (size_t)count * sizeof *arrived);
    if (arrived) e->arrived = arrived;
    if (!marks || !arrived) return 0;
    e->capacity = count;
    return 1;
}

/* At plan time no group of this rank is in flight, so nobody else looks at what is enlarged. */
static ra_status make_ready(void *self, int count) {
    endpoint *me = self;
    take_lock(me->hub);
    ra_status status =
        reserve(me, count) ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for groups of %d messages", count);
    if (status == RA_OK && me->link.device) status = ra_link_open(&me->link, me->link.device, me->capacity);
    pthread_mutex_unlock(&me->hub->lock);
    return status;
}

/* Whether an earlier message of the same kind still waits: its other end may have been posted while the lock was down,
 * and would be taken for this one's. The peer, which posts after it, matches both in order. */
static int overtakes(const endpoint *me, int i) {
    const ra_message *m = &me->messages[i];
    for (int j = 0; j < i; j++) {
        const ra_message *earlier = &me->messages[j];
        if (earlier->peer == m->peer && earlier->tag == m->tag && !earlier->is_send == !m->is_send &&
            me->marks[j] == MARK_POSTED)
            return 1;
    }
    return 0;
}

/* Matches what the peers have posted already; under the lock. */
static ra_status match_group(hub *h, endpoint *me) {
    for (int i = 0; i < me->count; i++) {
        if (me->marks[i] != MARK_POSTED) continue; /* a peer got there while this rank was copying */
        if (overtakes(me, i)) continue;
        endpoint *other = &h->endpoints[me->messages[i].peer];
        int j = find_match(other, me->rank, &me->messages[i]);
        if (j >= 0) RA_TRY(move(h, me, i, other, j));
    }
    return RA_OK;
}

/* Whether other has a message for, or from, this rank that waits for its other end. */
static int awaits(const endpoint *other, int rank) {
    for (int i = 0; i < other->count; i++)
        if (other->messages[i].peer == rank && other->marks[i] == MARK_POSTED) return 1;
    return 0;
}

/* Both ends of a message post it in the same step. So two ranks that have both posted, and wait for each other with
 * messages that do not match, have been called for different things and would wait for ever. Under the lock, when what
 * matches has been matched. */
static ra_status check_odds(const hub *h, const endpoint *me) {
    for (int i = 0; i < me->count; i++) {
        const ra_message *m = &me->messages[i];
        const endpoint *other = &h->endpoints[m->peer];
        if (me->marks[i] != MARK_POSTED || find_match(other, me->rank, m) >= 0 || !awaits(other, me->rank)) continue;
        return ra_fail(
            RA_ERR_TRANSPORT,
            "rank %d waits for this rank in another pass, plan or exchange: every rank must make the same calls "
            "in the same order",
            m->peer);
    }
    return RA_OK;
}

static ra_status post_group(endpoint *me, const ra_message *messages, int count, int on_device) {
    hub *h = me->hub;
    take_lock(h);
    note(me, 0, -1);
    ra_status status = RA_OK;
    if (h->failed_rank >= 0)
        status = peer_failed(h);
    else if (!reserve(me, count))
        status = ra_fail(RA_ERR_MEMORY, "no memory for a group of %d messages", count);
    if (status == RA_OK) {
        me->messages = messages;
        for (int i = 0; i < count; i++) me->marks[i] = MARK_POSTED;
        me->count = count;
        me->on_device = on_device;
        me->listening = count == 0;
        for (int i = 0; i < count; i++) me->lends |= on_device && !messages[i].data;
        status = match_group(h, me);
        if (status == RA_OK) status = check_odds(h, me);
    }
    pthread_mutex_unlock(&h->lock);
    return status;
}

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    (void)stream;
    return post_group(self, messages, count, 0);
}

static ra_status attach(void *self, const ra_device *device) {
    endpoint *me = self;
    atomic_store(&me->hub->has_device, 1);
    return ra_link_open(&me->link, device, me->capacity);
}

/* A pass that begins may be on another stream than the one before, of which a slow peer may have orders to join. */
static ra_status keep_orders(endpoint *me) {
    hub *h = me->hub;
    ra_status status = RA_OK;
    take_lock(h);
    for (int r = 0; r < h->ranks && !me->lends && status == RA_OK; r++)
        if (h->endpoints[r].count > 0) status = ra_link_keep_order(&me->link, &h->endpoints[r].link);
    pthread_mutex_unlock(&h->lock);
    return status;
}

static ra_status post_device(void *self, const ra_message *messages, int count, void *stream) {
    endpoint *me = self;
    RA_TRY(keep_orders(me));
    RA_TRY(ra_link_begin(&me->link, messages, count, stream));
    return post_group(me, messages, count, 1);
}

static ra_status join(void *self, void *stream) {
    endpoint *me = self;
    take_lock(me->hub);
    ra_status status = ra_link_join(&me->link, stream);
    me->count = 0;
    pthread_mutex_unlock(&me->hub->lock);
    return status;
}

/* Looks at the group: an error, done, or the first message that is not complete. Under the lock. */
static ra_status inspect(const endpoint *me, int *done_out, int *culprit_out) {
    *done_out = 0;
    *culprit_out = -1;
    for (int i = 0; i < me->count; i++) {
        const ra_message *m = &me->messages[i];
        if (me->marks[i] == MARK_WRONG_SIZE) {
            *culprit_out = i;
            return ra_fail(RA_ERR_TRANSPORT, "%zu bytes %s where %zu were expected",
                           m->is_send ? m->bytes : me->arrived[i], m->is_send ? "sent" : "came",
                           m->is_send ? me->arrived[i] : m->bytes);
        }
        if (me->marks[i] != MARK_DONE && *culprit_out < 0) *culprit_out = i;
    }
    *done_out = *culprit_out < 0;
    if (*done_out && !me->listening) return RA_OK; /* a peer that gives up later does not spoil this group */
    if (me->hub->failed_rank >= 0) return peer_failed(me->hub);
    if (*done_out) return RA_OK;
    const endpoint *peer = &me->hub->endpoints[me->messages[*culprit_out].peer];
    if (!peer->gone) return RA_OK;
    return ra_fail(RA_ERR_PEER, "rank %d has left: %s", peer->rank,
                   peer->parting ? peer->parting : "its communicator was destroyed");
}

/* Gives up the lock until one of the marks has changed, or till then. */
static void stay_awake(hub *h, endpoint *me, double end) {
    unsigned changes = atomic_load(&me->changes);
    pthread_mutex_unlock(&h->lock);
    while (atomic_load(&me->changes) == changes && ra_clock() < end) sched_yield();
    take_lock(h);
}

/* Ranks that have a device compute nothing themselves, so that they stay awake for messages in host memory too. */
static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    endpoint *me = self;
    hub *h = me->hub;
    double start = ra_clock(), end = start + seconds;
    struct timespec until = {.tv_sec = (time_t)end, .tv_nsec = (long)((end - (double)(time_t)end) * 1e9)};
    take_lock(h);
    ra_status status = inspect(me, done_out, culprit_out);
    while (status == RA_OK && !*done_out && ra_clock() < end) {
        note(me, 1, me->messages[*culprit_out].peer);
        if (me->link.device && ra_clock() < start + SOON)
            stay_awake(h, me, start + SOON);
        else
            pthread_cond_timedwait(&me->changed, &h->lock, &until);
        status = inspect(me, done_out, culprit_out);
    }
    note(me, 0, seconds > 0 && *culprit_out >= 0 ? me->messages[*culprit_out].peer : -1);
    if (status == RA_OK && *done_out && !me->on_device) me->count = 0; /* else join does */
    pthread_mutex_unlock(&h->lock);
    return status;
}

/* ---- memory that ranks lend each other --------------------------------------------------------------------------- */

/* Between the two calls a rank puts work in others' memory on its stream. A rank that gives up waits until nobody is
 * there, and nobody goes there afterwards: what others do in its memory is then on their streams. */
static ra_status borrow(void *self) {
    endpoint *me = self;
    hub *h = me->hub;
    take_lock(h);
    ra_status status = h->failed_rank >= 0 ? peer_failed(h) : RA_OK;
    if (status == RA_OK) h->borrowers++;
    pthread_mutex_unlock(&h->lock);
    return status;
}

static ra_status give_back(void *self, void *stream) {
    endpoint *me = self;
    hub *h = me->hub;
    ra_status status = ra_link_mark_used(&me->link, stream);
    take_lock(h);
    if (--h->borrowers == 0) pthread_cond_broadcast(&h->returned);
    pthread_mutex_unlock(&h->lock);
    return status;
}

static void settle(void *self) {
    endpoint *me = self;
    take_lock(me->hub);
    me->lends = 0;
    ra_link_end_pass(&me->link);
    pthread_mutex_unlock(&me->hub->lock);
}

const ra_memory_ops ra_thread_memory_ops = {.borrow = borrow, .give_back = give_back, .settle = settle};

/* What follows on this rank's stream comes after what the others have put on theirs in its memory. Under the lock. */
static void recall(hub *h, endpoint *me) {
    while (h->borrowers > 0) pthread_cond_wait(&h->returned, &h->lock);
    if (!me->lends) return;
    for (int r = 0; r < h->ranks; r++)
        if (r != me->rank) ra_link_await_used(&me->link, &h->endpoints[r].link);
    me->lends = 0;
}

static int abandon(void *self, const char *reason) {
    endpoint *me = self;
    hub *h = me->hub;
    take_lock(h);
    if (h->failed_rank < 0) {
        h->failed_rank = me->rank;
        snprintf(h->reason, sizeof h->reason, "%s", reason);
    }
    /* Messages not yet claimed are withdrawn; the copies under way end by themselves. */
    for (int i = 0; i < me->count; i++)
        if (me->marks[i] == MARK_POSTED) me->marks[i] = MARK_DONE;
    while (me->copies > 0) pthread_cond_wait(&me->changed, &h->lock);
    ra_link_join(&me->link, me->link.stream); /* the memory is freed behind what is on the stream */
    recall(h, me);
    me->count = 0;
    for (int r = 0; r < h->ranks; r++) pthread_cond_broadcast(&h->endpoints[r].changed);
    pthread_mutex_unlock(&h->lock);
    return 1;
}

static void free_hub(hub *h) {
    for (int r = 0; r < h->ranks; r++) {
        free(h->endpoints[r].marks);
        free(h->endpoints[r].arrived);
        free(h->endpoints[r].parting);
        ra_link_close(&h->endpoints[r].link);
        pthread_cond_destroy(&h->endpoints[r].changed);
    }
    pthread_cond_destroy(&h->returned);
    pthread_mutex_destroy(&h->lock);
    free(h->endpoints);
    free(h);
}

static void destroy(void *self) {
    endpoint *me = self;
    hub *h = me->hub;
    take_lock(h);
    me->gone = 1;
    int last = --h->alive == 0;
    for (int r = 0; r < h->ranks; r++) pthread_cond_broadcast(&h->endpoints[r].changed);
    pthread_mutex_unlock(&h->lock);
    if (last) free_hub(h);
}

void ra_thread_leave(void *self, const char *reason) {
    endpoint *me = self;
    char *kept = strdup(reason);
    take_lock(me->hub);
    free(me->parting);
    me->parting = kept;
    pthread_mutex_unlock(&me->hub->lock);
}

const ra_transport_ops ra_thread_ops = {.struct_size = sizeof ra_thread_ops,
                                        .name = "thread",
                                        .post = post,
                                        .poll = poll,
                                        .abandon = abandon,
                                        .destroy = destroy,
                                        .attach = attach,
                                        .post_device = post_device,
                                        .join = join,
                                        .inquire = inquire,
                                        .reserve = make_ready};

ra_status ra_thread_create(int ranks, void **selves_out) {
    hub *h = calloc(1, sizeof *h);
    endpoint *endpoints = calloc((size_t)ranks, sizeof *endpoints);
    if (!h || !endpoints) {
        free(h);
        free(endpoints);
        return ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
    }
    *h = (hub){.ranks = ranks, .alive = ranks, .failed_rank = -1, .endpoints = endpoints};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->returned, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int r = 0; r < ranks; r++) {
        endpoints[r].hub = h;
        endpoints[r].rank = r;
        note(&endpoints[r], 0, -1);
        pthread_cond_init(&endpoints[r].changed, &monotonic);
        selves_out[r] = &endpoints[r];
    }
    pthread_condattr_destroy(&monotonic);
    return RA_OK;
}

ra_status ra_comm_create_threads(int ranks, ra_comm **comms_out) {
    if (!comms_out) return ra_refuse("comms_out is NULL");
    if (ranks < 1 || ranks > 4096) return ra_refuse("ranks is %d; a process can have between 1 and 4096", ranks);
    void **selves = calloc((size_t)ranks, sizeof *selves);
    if (!selves) return ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
    ra_status status = ra_thread_create(ranks, selves);
    int made = 0;
    while (status == RA_OK && made < ranks) {
        status = ra_comm_create_custom(&ra_thread_ops, selves[made], made, ranks, &comms_out[made]);
        if (status == RA_OK) {
            comms_out[made]->memory_ops = &ra_thread_memory_ops;
            comms_out[made++]->process_ranks = ranks;
        } else
            for (int r = ranks - 1; r >= made; r--) destroy(selves[r]);
    }
    if (status != RA_OK)
        while (made > 0) ra_comm_destroy(comms_out[--made]);
    free(selves);
    return status;
}
