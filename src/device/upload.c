#include "device/upload.h"

#include "base/status.h"

#include <stdlib.h>
#include <time.h>

static void destroy(ra_uploader *uploader) {
    if (uploader->stream) uploader->device->stream_destroy(uploader->device, uploader->stream);
    ra_blocks_release(&uploader->pinned);
    ra_blocks_release(&uploader->memory);
    free(uploader);
}

ra_status ra_uploader_find(ra_uploader **list, const ra_device *device, ra_uploader **uploader_out) {
    for (ra_uploader *each = *list; each; each = each->next)
        if (each->device == device) return *uploader_out = each, RA_OK;
    ra_uploader *made = calloc(1, sizeof *made);
    if (!made) return ra_no_memory();
    *made = (ra_uploader){.device = device, .pinned = {device, 1, NULL}, .memory = {device, 0, NULL}, .next = *list};
    ra_status status = device->stream_create(device, 1, &made->stream);
    if (status != RA_OK) return destroy(made), status;
    *uploader_out = *list = made;
    return RA_OK;
}

void ra_uploaders_destroy(ra_uploader *list) {
    while (list) {
        ra_uploader *uploader = list;
        list = list->next;
        destroy(uploader);
    }
}

ra_status ra_upload_begin(ra_uploader *uploader, size_t pinned_bytes, size_t memory_bytes, ra_upload *upload_out) {
    *upload_out = (ra_upload){.uploader = uploader};
    RA_TRY(ra_block_take(&uploader->pinned, pinned_bytes, &upload_out->pinned));
    return ra_block_take(&uploader->memory, memory_bytes, &upload_out->memory);
}

ra_status ra_upload_send(ra_upload *upload, size_t bytes) {
    const ra_device *device = upload->uploader->device;
    void *stream = upload->uploader->stream;
    ra_block *pinned = upload->pinned;
    RA_TRY(device->copy(device, upload->memory->memory, pinned->memory, bytes, stream));
    RA_TRY(device->signal(device, pinned->event, stream));
    upload->sent = pinned->event;
    upload->pinned = NULL;
    ra_block_give(pinned);
    return RA_OK;
}

static ra_status captures(const ra_device *device, void *stream, int *captures_out) {
    *captures_out = 0;
    return device->captures ? device->captures(device, stream, captures_out) : RA_OK;
}

/* A copy takes microseconds. */
static ra_status wait_on_host(const ra_device *device, void *event) {
    for (int done = 0; !done;) {
        RA_TRY(device->query(device, event, &done));
        if (!done) nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    return RA_OK;
}

ra_status ra_upload_join(ra_upload *upload, void *stream) {
    int captured;
    if (!upload->sent || upload->is_there) return RA_OK;
    const ra_device *device = upload->uploader->device;
    RA_TRY(device->query(device, upload->sent, &upload->is_there));
    if (upload->is_there) return RA_OK;
    RA_TRY(captures(device, stream, &captured));
    if (!captured) return device->wait(device, stream, upload->sent);
    RA_TRY(wait_on_host(device, upload->sent));
    upload->is_there = 1;
    return RA_OK;
}

ra_status ra_upload_mark(const ra_upload *upload, void *stream) {
    int captured;
    if (!upload->memory) return RA_OK;
    const ra_device *device = upload->uploader->device;
    RA_TRY(captures(device, stream, &captured));
    return captured ? RA_OK : device->signal(device, upload->memory->event, stream);
}

void ra_upload_end(ra_upload *upload) {
    if (upload->pinned) ra_block_give(upload->pinned);
    if (upload->memory) ra_block_give(upload->memory);
    *upload = (ra_upload){0};
}
