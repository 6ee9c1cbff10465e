/* Small files in a folder of the user's own: each appears whole or not at all, and only what this user wrote is read.
 */
#ifndef RA_TRANSPORT_RENDEZVOUS_FOLDER_H
#define RA_TRANSPORT_RENDEZVOUS_FOLDER_H

#include <ringattn/ringattn.h>

enum { RA_FOLDER_NAME = 160 };

typedef struct ra_folder {
    int descriptor;
    char path[512]; /* for errors */
} ra_folder;

/* Makes it where it is not there. Refuses one that is a symbolic link, that is somebody else's, or that others may
 * enter. */
ra_status ra_folder_open(const char *path, ra_folder *folder_out);
void ra_folder_close(ra_folder *folder);

/* Puts a file there, in the place of one of that name. */
ra_status ra_folder_write(const ra_folder *folder, const char *name, const void *data, size_t bytes);

/* *found_out is 0 while there is no such file. data_out [capacity], *bytes_out: how long the file is, which may be
 * more. One that is no plain file of this user's is refused. */
ra_status ra_folder_read(const ra_folder *folder, const char *name, void *data_out, size_t capacity, size_t *bytes_out,
                         int *found_out);

int ra_folder_has(const ra_folder *folder, const char *name);
void ra_folder_remove(const ra_folder *folder, const char *name);

/* Calls visit(user, name) for every name that begins with prefix. */
ra_status ra_folder_visit(const ra_folder *folder, const char *prefix, void (*visit)(void *user, const char *name),
                          void *user);

/* Locks a file until the descriptor is closed, by this process or by its death. *lock_out is -1 when another process
 * has it. */
ra_status ra_folder_lock(const ra_folder *folder, const char *name, int *lock_out);

#endif
