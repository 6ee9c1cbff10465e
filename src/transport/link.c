#include "transport/link.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Events and places for as many messages; those there are stay, for a sender may still wait for one. */
static ra_status enlarge(ra_link *link, int capacity) {
    void **copied = realloc(link->copied, (size_t)capacity * sizeof *copied);
    if (copied) link->copied = copied;
    void **awaited = realloc(link->awaited, (size_t)capacity * sizeof *awaited);
    if (awaited) link->awaited = awaited;
    if (!copied || !awaited) return ra_fail(RA_ERR_MEMORY, "no memory for %d messages", capacity);
    for (; link->capacity < capacity; link->capacity++)
        RA_TRY(link->device->event_create(link->device, &link->copied[link->capacity]));
    return RA_OK;
}

static ra_status make(ra_link *link, const ra_device *device) {
    link->device = device;
    RA_TRY(device->stream_create(device, 1, &link->transfers));
    RA_TRY(device->event_create(device, &link->ready));
    RA_TRY(device->event_create(device, &link->used[0]));
    return device->event_create(device, &link->used[1]);
}

ra_status ra_link_open(ra_link *link, const ra_device *device, int capacity) {
    int was_open = link->device != NULL;
    ra_status status = was_open ? RA_OK : make(link, device);
    if (status == RA_OK && capacity > link->capacity) status = enlarge(link, capacity);
    if (status != RA_OK && !was_open) ra_link_close(link);
    return status;
}

void ra_link_close(ra_link *link) {
    const ra_device *device = link->device;
    if (!device) return;
    if (link->transfers) device->stream_destroy(device, link->transfers);
    if (link->ready) device->event_destroy(device, link->ready);
    for (int i = 0; i < 2; i++)
        if (link->used[i]) device->event_destroy(device, link->used[i]);
    for (int i = 0; i < link->capacity; i++) device->event_destroy(device, link->copied[i]);
    free(link->copied);
    free(link->awaited);
    *link = (ra_link){0};
}

/* Nobody waits for who only receives orders. */
static int is_awaited(const ra_message *messages, int count) {
    for (int i = 0; i < count; i++)
        if (messages[i].is_send || messages[i].data) return 1;
    return 0;
}

ra_status ra_link_begin(ra_link *link, const ra_message *messages, int count, void *stream) {
    if (count > link->capacity) RA_TRY(enlarge(link, count)); /* nobody had said so before */
    if (count > 0) memset(link->awaited, 0, (size_t)count * sizeof *link->awaited);
    link->count = count;
    link->stream = stream;
    return is_awaited(messages, count) ? link->device->signal(link->device, link->ready, stream) : RA_OK;
}

ra_status ra_link_move(ra_link *sender, int i, const ra_message *from, ra_link *receiver, int j, const ra_message *to) {
    const ra_device *device = receiver->device;
    int within = sender->device == device && device->copy_within;
    if (!to->data) {
        receiver->awaited[j] = sender->ready;
        return RA_OK;
    }
    RA_TRY(device->wait(device, receiver->transfers, sender->ready));
    RA_TRY(device->wait(device, receiver->transfers, receiver->ready));
    RA_TRY((within ? device->copy_within : device->copy)(device, to->data, from->data, to->bytes, receiver->transfers));
    receiver->awaited[j] = sender->awaited[i] = receiver->copied[j];
    return device->signal(device, receiver->copied[j], receiver->transfers);
}

ra_status ra_link_keep_order(const ra_link *sender, ra_link *receiver) {
    const ra_device *device = receiver->device;
    for (int i = 0; i < receiver->count; i++) {
        if (!receiver->awaited[i] || receiver->awaited[i] != sender->ready) continue;
        RA_TRY(device->wait(device, receiver->transfers, sender->ready));
        RA_TRY(device->signal(device, receiver->copied[i], receiver->transfers));
        receiver->awaited[i] = receiver->copied[i];
    }
    return RA_OK;
}

ra_status ra_link_mark_used(ra_link *link, void *stream) {
    return link->device ? link->device->signal(link->device, link->used[link->pass], stream) : RA_OK;
}

ra_status ra_link_await_used(ra_link *link, const ra_link *other) {
    if (!link->device || !other->device) return RA_OK;
    RA_TRY(link->device->wait(link->device, link->stream, other->used[0]));
    return link->device->wait(link->device, link->stream, other->used[1]);
}

void ra_link_end_pass(ra_link *link) {
    link->pass = !link->pass;
}

ra_status ra_link_join(ra_link *link, void *stream) {
    ra_status status = RA_OK;
    for (int i = 0; i < link->count && status == RA_OK; i++)
        if (link->awaited[i]) status = link->device->wait(link->device, stream, link->awaited[i]);
    link->count = 0;
    return status;
}
