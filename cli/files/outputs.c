#include "files/outputs.h"

#include "cli.h"
#include "files/cleanup.h"
#include "files/npy_file.h"
#include "files/npy_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- targets --------------------------------------------------------------------------------------------------- */

output_file *outputs_add(output_set *set, const char *what, const char *path, ra_dtype dtype, int dims,
                         const int64_t *shape) {
    if (!path || set->count == OUTPUTS_MAX) return NULL;
    output_file *file = &set->files[set->count++];
    *file = (output_file){.what = what, .path = path, .target = {.stream = -1}, .fd = -1, .dtype = dtype, .dims = dims};
    for (int i = 0; i < dims; ++i) file->shape[i] = shape[i];
    return file;
}

static int same_target(const output_file *a, const output_file *b) {
    return a->target.path && b->target.path && strcmp(a->target.path, b->target.path) == 0;
}

ra_status outputs_check(output_set *set, int makes) {
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        CLI_RETURN_ON_ERROR(target_find(file->what, file->path, file->dims == 0, makes, &file->target));
        for (int j = 0; j < i; ++j)
            if (same_target(file, &set->files[j]))
                CLI_RETURN_REFUSAL("%s: %s is also the file of %s; give each output its own", file->what, file->path,
                                   set->files[j].what);
    }
    return RA_OK;
}

ra_status outputs_check_input(const output_set *set, const char *what, const char *path) {
    char *real = path ? realpath(path, NULL) : NULL;
    ra_status status = RA_OK;
    for (int i = 0; real && status == RA_OK && i < set->count; ++i)
        if (set->files[i].target.path && strcmp(set->files[i].target.path, real) == 0)
            status = ra_fail(RA_ERR_ARGUMENT, "%s: %s is also the file of %s; an input is not overwritten",
                             set->files[i].what, set->files[i].path, what);
    free(real);
    return status;
}

/* ---- partial files --------------------------------------------------------------------------------------------- */

void outputs_token(char *token_out) {
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    snprintf(token_out, OUTPUT_TOKEN_BYTES, "%ld-%09ld", (long)getpid(), clock.tv_nsec);
}

/* The name beside the target, short so that it always fits: "out.partial-TOKEN", of which a set has one. */
static char *name_beside(const output_file *file, const char *kind, const char *token) {
    size_t bytes = strlen(file->target.folder) + strlen(file->what) + strlen(kind) + strlen(token) + 4;
    char *name = malloc(bytes);
    if (name)
        snprintf(name, bytes, "%s/%s.%s-%s", file->target.folder, file->what + strspn(file->what, "-"), kind, token);
    return name;
}

ra_status outputs_name(output_set *set, const char *token) {
    cleanup_catch_signals();
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        if (!file->target.path) continue;
        file->partial = name_beside(file, "partial", token);
        if (!file->partial) return ra_fail(RA_ERR_MEMORY, "%s: no memory for its name", file->what);
        cleanup_set(i, file->partial);
    }
    return RA_OK;
}

static ra_status cannot(const output_file *file, const char *verb) {
    return ra_fail(CLI_FAILED, "%s: cannot %s %s: %s", file->what, verb, file->path, strerror(errno));
}

static ra_status fill_header(output_file *file) {
    if (file->dims == 0) return RA_OK;
    char header[NPY_WRITE_BYTES];
    size_t bytes = npy_format(file->dtype, file->dims, file->shape, header);
    int64_t total = (int64_t)ra_dtype_bytes(file->dtype);
    for (int i = 0; i < file->dims; ++i)
        if (__builtin_mul_overflow(total, file->shape[i], &total))
            CLI_RETURN_REFUSAL("%s: the array is too large", file->what);
    if (__builtin_add_overflow(total, (int64_t)bytes, &total))
        CLI_RETURN_REFUSAL("%s: the array is too large", file->what);
    file->data_offset = (int64_t)bytes;
    if (ftruncate(file->fd, (off_t)total) != 0) return cannot(file, "make");
    return rows_pwrite(file->what, file->fd, header, bytes, 0);
}

/* A file of that name is somebody else's: it is not this process's to remove. Nobody but the owner reads the beginnings
 * of a file whose mode is set when it is whole. */
static ra_status make_partial(output_file *file, int place) {
    cleanup_hold_signals(); /* whoever removes the files has not done so yet */
    file->fd = open(file->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, file->target.replaces ? 0600 : 0666);
    int error = errno;
    cleanup_release_signals();
    if (file->fd >= 0) return RA_OK;
    cleanup_set(place, NULL);
    free(file->partial);
    file->partial = NULL;
    errno = error;
    return cannot(file, "make");
}

static ra_status create(output_file *file, int place) {
    if (file->target.path) {
        CLI_RETURN_ON_ERROR(make_partial(file, place));
        return fill_header(file);
    }
    file->fd = fcntl(file->target.stream, F_DUPFD_CLOEXEC, 0);
    return file->fd < 0 ? cannot(file, "write") : RA_OK;
}

ra_status outputs_create(output_set *set) {
    for (int i = 0; i < set->count; ++i) CLI_RETURN_ON_ERROR(create(&set->files[i], i));
    return RA_OK;
}

ra_status outputs_attach(output_set *set) {
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        char header[NPY_WRITE_BYTES];
        if (file->dims == 0) continue;
        file->fd = open(file->partial, O_RDWR | O_CLOEXEC);
        if (file->fd < 0) return cannot(file, "open");
        file->data_offset = (int64_t)npy_format(file->dtype, file->dims, file->shape, header);
    }
    return RA_OK;
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* Everything that can fail without a target being touched. */
static ra_status finish(output_file *file) {
    int undressed = file->target.path && target_dress(&file->target, file->fd) != 0;
    if (undressed) return cannot(file, "set the mode of");
    int closed = close(file->fd);
    file->fd = -1;
    return closed == 0 ? RA_OK : cannot(file, "write");
}

/* The file that is replaced keeps a second name, so that it can be put back; where the file system has no second names
 * it is moved there, and is missing for a moment. */
static ra_status keep_previous(output_file *file, const char *token) {
    struct stat info;
    if (lstat(file->target.path, &info) == 0 && !S_ISREG(info.st_mode))
        return ra_fail(CLI_FAILED, "%s: cannot replace %s: it has become something else than a regular file",
                       file->what, file->path);
    file->previous = name_beside(file, "previous", token);
    if (!file->previous) return ra_fail(RA_ERR_MEMORY, "%s: no memory for a name", file->what);
    if (link(file->target.path, file->previous) == 0 || rename(file->target.path, file->previous) == 0) return RA_OK;
    int absent = errno == ENOENT;
    free(file->previous);
    file->previous = NULL;
    return absent ? RA_OK : cannot(file, "replace");
}

static ra_status place(output_file *file, const char *token) {
    if (!file->partial) return RA_OK;
    CLI_RETURN_ON_ERROR(keep_previous(file, token));
    if (rename(file->partial, file->target.path) != 0) return cannot(file, "put in place");
    file->placed = 1;
    return RA_OK;
}

static void take_back(output_file *file) {
    if (file->previous)
        rename(file->previous, file->target.path);
    else if (file->placed)
        unlink(file->target.path);
}

static ra_status place_all(output_set *set) {
    char token[OUTPUT_TOKEN_BYTES];
    outputs_token(token);
    ra_status status = RA_OK;
    for (int i = 0; status == RA_OK && i < set->count; ++i) status = place(&set->files[i], token);
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        if (status != RA_OK) take_back(file);
        if (file->previous) unlink(file->previous);
        free(file->previous);
        file->previous = NULL;
        if (!file->placed) continue;
        cleanup_set(i, NULL);
        free(file->partial);
        file->partial = NULL;
    }
    return status;
}

ra_status outputs_commit(output_set *set) {
    for (int i = 0; i < set->count; ++i) CLI_RETURN_ON_ERROR(finish(&set->files[i]));
    cleanup_hold_signals();
    ra_status status = place_all(set);
    cleanup_release_signals();
    return status;
}

void outputs_discard(output_set *set) {
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        if (file->fd >= 0) close(file->fd);
        if (file->partial) unlink(file->partial);
        cleanup_set(i, NULL);
        free(file->partial);
        target_free(&file->target);
    }
    *set = (output_set){0};
}
