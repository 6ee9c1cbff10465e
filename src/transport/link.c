#include "transport/link.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static ra_status make(ra_link *link, const ra_device *device, int capacity) {
    link->device = device;
    link->copied = calloc((size_t)capacity, sizeof *link->copied);
    link->awaited = calloc((size_t)capacity, sizeof *link->awaited);
    if (!link->copied || !link->awaited) return ra_fail(RA_ERR_MEMORY, "no memory for %d messages", capacity);
    link->capacity = capacity;
    RA_TRY(device->stream_create(device, 1, &link->transfers));
    RA_TRY(device->event_create(device, &link->ready));
    for (int i = 0; i < capacity; i++) RA_TRY(device->event_create(device, &link->copied[i]));
    return RA_OK;
}

ra_status ra_link_open(ra_link *link, const ra_device *device, int capacity) {
    if (link->device) return RA_OK;
    ra_status status = make(link, device, capacity);
    if (status != RA_OK) ra_link_close(link);
    return status;
}

void ra_link_close(ra_link *link) {
    const ra_device *device = link->device;
    if (!device) return;
    if (link->transfers) device->stream_destroy(device, link->transfers);
    if (link->ready) device->event_destroy(device, link->ready);
    for (int i = 0; i < link->capacity; i++)
        if (link->copied[i]) device->event_destroy(device, link->copied[i]);
    free(link->copied);
    free(link->awaited);
    *link = (ra_link){0};
}

ra_status ra_link_begin(ra_link *link, int count, void *stream) {
    if (count > link->capacity)
        return ra_fail(RA_ERR_INTERNAL, "a group of %d messages; in-process ranks on a device are ready for %d", count,
                       link->capacity);
    memset(link->awaited, 0, (size_t)count * sizeof *link->awaited);
    link->count = count;
    link->stream = stream;
    return link->device->record(link->device, link->ready, stream);
}

ra_status ra_link_move(ra_link *sender, int i, const ra_message *from, ra_link *receiver, int j, const ra_message *to) {
    const ra_device *device = receiver->device;
    RA_TRY(device->wait(device, receiver->transfers, sender->ready));
    RA_TRY(device->wait(device, receiver->transfers, receiver->ready));
    RA_TRY(device->copy(device, to->data, from->data, to->bytes, receiver->transfers));
    RA_TRY(device->record(device, receiver->copied[j], receiver->transfers));
    sender->awaited[i] = receiver->awaited[j] = receiver->copied[j];
    return RA_OK;
}

ra_status ra_link_join(ra_link *link, void *stream) {
    ra_status status = RA_OK;
    for (int i = 0; i < link->count && status == RA_OK; i++)
        if (link->awaited[i]) status = link->device->wait(link->device, stream, link->awaited[i]);
    link->count = 0;
    return status;
}
