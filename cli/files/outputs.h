/* Output files. Each is written beside its target under another name and renamed when all of them are whole, so that
 * no file ever looks like a result and is not one, and either all targets are replaced or none:
 *
 *   check (targets)  ->  name  ->  create (rank 0), then attach (others)  ->  rows are written  ->  commit (rank 0)
 *                                                                                        failure ->  discard
 *
 * A text may also go to a stream (targets.h), which is written into as it stands. */
#ifndef CLI_OUTPUTS_H
#define CLI_OUTPUTS_H

#include "files/targets.h"

#include <ringattn/ringattn.h>

typedef struct output_file {
    const char *what, *path; /* the argument and what it said */
    output_target target;
    char *partial;  /* NULL: there is none */
    char *previous; /* a second name of the file that was replaced, until all of them are; NULL: none */
    int placed;     /* renamed */
    int fd;         /* -1: not open */
    /* The array; dims 0: a text. */
    ra_dtype dtype;
    int dims;
    int64_t shape[4];
    int64_t data_offset;
} output_file;

enum { OUTPUTS_MAX = 6, OUTPUT_TOKEN_BYTES = 64 };

typedef struct output_set {
    output_file files[OUTPUTS_MAX];
    int count;
} output_set;

/* Adds a file unless path is NULL; the pointer stays valid, NULL when nothing was added. */
output_file *outputs_add(output_set *set, const char *what, const char *path, ra_dtype dtype, int dims,
                         const int64_t *shape);

/* Finds the targets; refuses those that cannot be written, and two outputs of one file. makes: this is the process that
 * makes the files, so it opens streams. */
ra_status outputs_check(output_set *set, int makes);

/* Refuses an output that would replace this input. After outputs_check. */
ra_status outputs_check_input(const output_set *set, const char *what, const char *path);

/* One name for all partial files of this run. token_out [OUTPUT_TOKEN_BYTES]. */
void outputs_token(char *token_out);

/* Names the partial files. From here on a signal that ends this process removes them, whoever makes them. */
ra_status outputs_name(output_set *set, const char *token);

/* Makes the files, at full size and with their headers. Every process has named them by then, so that the others remove
 * them should this one die. */
ra_status outputs_create(output_set *set);

/* Opens those that another process made. */
ra_status outputs_attach(output_set *set);

/* Renames all, or restores what was there. */
ra_status outputs_commit(output_set *set);

/* Removes whatever is left of partial files and frees the set; also right after commit, and in a process that attached
 * when the one that made the files has committed them. */
void outputs_discard(output_set *set);

#endif
