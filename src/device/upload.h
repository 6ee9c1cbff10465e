/* Uploads: what a plan writes once and a device then reads, put there by one copy that the host does not wait for.
 *
 *     host      take ── write ── copy, signal a ── give the pinned block back      ── first pass ──       ── ends ──
 *     uploads                    ══ copy ══● a                                          │                    │
 *     a pass                               └───────────────────────────► wait a ══ kernels read ══● b        │
 *     the next plan's upload                            takes the device block when b has happened ◄─────────┘
 *
 * The pinned block is used again when a has happened, the device block when the upload has ended and b has happened.
 * Both are kept (block_pool.h), so an upload like one before it allocates nothing. The uploads of an uploader are on
 * one stream, one after the other: a block that is given back before its own upload is over can be uploaded to again.
 */
#ifndef RA_DEVICE_UPLOAD_H
#define RA_DEVICE_UPLOAD_H

#include "device/block_pool.h"

/* What uploads to one device are made with; used by one thread at a time. Uploaders form a list, one for a device. */
typedef struct ra_uploader {
    const ra_device *device;
    void *stream;
    ra_block_pool pinned, memory;
    struct ra_uploader *next;
} ra_uploader;

/* That of an asynchronous device, which is made where the list has none. */
ra_status ra_uploader_find(ra_uploader **list, const ra_device *device, ra_uploader **uploader_out);

/* All of a list. Waits for the devices. */
void ra_uploaders_destroy(ra_uploader *list);

/* One upload. All zeros: none, which can be joined, marked and ended. */
typedef struct ra_upload {
    ra_uploader *uploader;
    ra_block *pinned; /* until it is sent */
    ra_block *memory; /* on the device */
    void *sent;       /* event; signalled again by later uploads alone, which are behind this one */
    int is_there;     /* the event has happened */
} ra_upload;

/* Takes memory: upload_out->pinned for what is uploaded, at least so many bytes, and upload_out->memory, on the device.
 * To be ended, whether this succeeds or not. */
ra_status ra_upload_begin(ra_uploader *uploader, size_t pinned_bytes, size_t memory_bytes, ra_upload *upload_out);

/* Copies so many bytes from the beginning of the pinned block to that of the device's. Does not wait. */
ra_status ra_upload_send(ra_upload *upload, size_t bytes);

/* Before work that reads it: what is put on the stream from now on comes after the copy. Waits on the host only where
 * the stream captures, since a graph cannot wait for what is not in it. */
ra_status ra_upload_join(ra_upload *upload, void *stream);

/* After such work: the memory is not used again before it. Work of a graph is not known here: whoever launches it ends
 * the upload later. */
ra_status ra_upload_mark(const ra_upload *upload, void *stream);

/* Gives the memory back. */
void ra_upload_end(ra_upload *upload);

#endif
