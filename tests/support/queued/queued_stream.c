#include "support/queued/queued_stream.h"

#include "support/rng.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct queued_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job *first, *last;
    uint64_t put, done; /* jobs */
    int ending;
    queued_habits habits;
    rng random;
};

/* One record of an event. Who waits for an event waits for the record that was its last then, wherever it is recorded
 * anew. */
struct queued_mark {
    int reached;
    queued_mark *before;
};

struct queued_event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    queued_mark *last; /* NULL: never signalled */
};

static void maybe_sleep(queued_stream *s) {
    if (!s->habits.delay_one_in || !rng_one_in(&s->random, s->habits.delay_one_in)) return;
    long us = (long)rng_between(&s->random, 0, s->habits.delay_most_us);
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* The next job, or NULL when the stream ends. */
static job *take(queued_stream *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->ending) pthread_cond_wait(&s->changed, &s->lock);
    job *j = s->first;
    if (j) s->first = j->next;
    if (!s->first) s->last = NULL;
    pthread_mutex_unlock(&s->lock);
    return j;
}

static void *work(void *argument) {
    queued_stream *s = argument;
    job *j;
    while ((j = take(s))) {
        maybe_sleep(s);
        j->run(j);
        free(j);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

queued_stream *queued_stream_make(queued_habits habits) {
    queued_stream *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->habits = habits;
    s->random.state = habits.seed;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, work, s) != 0) abort();
    return s;
}

void queued_stream_end(queued_stream *s) {
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

void queued_put(queued_stream *s, const job *j) {
    job *copy = malloc(sizeof *copy);
    if (!copy) abort();
    *copy = *j;
    copy->next = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->last)
        s->last->next = copy;
    else
        s->first = copy;
    s->last = copy;
    s->put++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void queued_drain(queued_stream *s) {
    pthread_mutex_lock(&s->lock);
    while (s->done < s->put) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

queued_event *queued_event_make(void) {
    queued_event *e = calloc(1, sizeof *e);
    if (!e) abort();
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    return e;
}

void queued_event_end(queued_event *e) {
    for (queued_mark *mark = e->last, *before; mark; mark = before) {
        before = mark->before;
        free(mark);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static void reach(const job *j) {
    pthread_mutex_lock(&j->event->lock);
    j->mark->reached = 1;
    pthread_cond_broadcast(&j->event->changed);
    pthread_mutex_unlock(&j->event->lock);
}

void queued_record(queued_event *e, queued_stream *s) {
    queued_mark *mark = calloc(1, sizeof *mark);
    if (!mark) abort();
    job j = {.run = reach, .event = e, .mark = mark};
    pthread_mutex_lock(&e->lock);
    mark->before = e->last;
    e->last = mark;
    pthread_mutex_unlock(&e->lock);
    queued_put(s, &j);
}

static void await(const job *j) {
    pthread_mutex_lock(&j->event->lock);
    while (j->mark && !j->mark->reached) pthread_cond_wait(&j->event->changed, &j->event->lock);
    pthread_mutex_unlock(&j->event->lock);
}

void queued_wait(queued_stream *s, queued_event *e) {
    pthread_mutex_lock(&e->lock);
    job j = {.run = await, .event = e, .mark = e->last};
    pthread_mutex_unlock(&e->lock);
    queued_put(s, &j);
}

int queued_is_done(queued_event *e) {
    pthread_mutex_lock(&e->lock);
    int done = !e->last || e->last->reached;
    pthread_mutex_unlock(&e->lock);
    return done;
}
