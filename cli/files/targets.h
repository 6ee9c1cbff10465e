/* Where an output goes. A path is followed to what it stands for, so that links stay links:
 *
 *   nothing yet, or a regular file   written beside it and renamed over it; what is there gives its mode and owner
 *   a stream                         written into: a pipe, a terminal, a device, and whatever a descriptor that this
 *                                    process was started with leads to, which another program may be writing to as well
 */
#ifndef CLI_TARGETS_H
#define CLI_TARGETS_H

#include <ringattn/ringattn.h>
#include <sys/stat.h>

typedef struct output_target {
    char *folder, *path; /* real names, without links; NULL: a stream */
    int replaces;        /* a file that is there, as `before` says */
    struct stat before;
    int stream; /* the descriptor; -1: not a stream, or not opened */
} output_target;

/* Finds out where `path` leads, and refuses what cannot be written: folders, names in folders that are not there or not
 * writable, files that are not writable, and streams unless takes_stream. opens: a stream is opened too. On failure
 * nothing is held. */
ra_status target_find(const char *what, const char *path, int takes_stream, int opens, output_target *target_out);

/* Closes the stream and frees the names. */
void target_free(output_target *target);

/* Gives the file behind fd the mode and, as far as this process may, the owner of the one that it replaces. Returns 0,
 * or -1 with errno. */
int target_dress(const output_target *target, int fd);

#endif
