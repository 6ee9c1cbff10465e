#include "outputs.h"

#include "cli.h"
#include "npy_file.h"
#include "npy_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- a signal removes partial files ---------------------------------------------------------------------------- */

/* What the handler may look at: names of files that exist and are not whole. A process has one set at a time. */
static char *volatile unfinished[OUTPUTS_MAX];

static void remove_unfinished(int signal_number) {
    for (int i = 0; i < OUTPUTS_MAX; ++i)
        if (unfinished[i]) unlink(unfinished[i]);
    /* The handler is gone by SA_RESETHAND: this ends the process the way it would have ended. */
    raise(signal_number);
}

static void catch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; ++i) {
        struct sigaction before, action = {.sa_flags = SA_RESETHAND};
        action.sa_handler = remove_unfinished;
        sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

/* ---- targets --------------------------------------------------------------------------------------------------- */

output_file *outputs_add(output_set *set, const char *what, const char *path, ra_dtype dtype, int dims,
                         const int64_t *shape) {
    if (!path || set->count == OUTPUTS_MAX) return NULL;
    output_file *file = &set->files[set->count++];
    *file = (output_file){.what = what, .path = path, .fd = -1, .dtype = dtype, .dims = dims};
    for (int i = 0; i < dims; ++i) file->shape[i] = shape[i];
    return file;
}

/* The real name of a file that need not exist in a folder that must; *folder_out without the file's name. */
static ra_status resolve(output_file *file) {
    const char *slash = strrchr(file->path, '/');
    const char *name = slash ? slash + 1 : file->path;
    char *folder = strdup(slash ? file->path : ".");
    if (!folder) return ra_fail(RA_ERR_MEMORY, "%s: no memory for its name", file->what);
    if (slash) folder[slash == file->path ? 1 : slash - file->path] = '\0';
    char *real = realpath(folder, NULL);
    free(folder);
    if (!real) CLI_REFUSE("%s: cannot write %s: %s", file->what, file->path, strerror(errno));
    if (access(real, W_OK | X_OK) != 0) {
        int error = errno;
        free(real);
        CLI_REFUSE("%s: cannot write %s: %s", file->what, file->path, strerror(error));
    }
    size_t bytes = strlen(real) + strlen(name) + 2;
    file->target = malloc(bytes);
    if (file->target) snprintf(file->target, bytes, "%s/%s", real, name);
    free(real);
    return file->target ? RA_OK : ra_fail(RA_ERR_MEMORY, "%s: no memory for its name", file->what);
}

static ra_status check_target(output_file *file) {
    struct stat info;
    if (stat(file->path, &info) != 0) {
        if (errno != ENOENT) CLI_REFUSE("%s: cannot write %s: %s", file->what, file->path, strerror(errno));
        if (file->path[strlen(file->path) - 1] == '/')
            CLI_REFUSE("%s: %s names a folder, not a file", file->what, file->path);
        return resolve(file);
    }
    if (!S_ISREG(info.st_mode)) CLI_REFUSE("%s: %s exists and is not a regular file", file->what, file->path);
    /* A symbolic link stays one: the file behind it is replaced. */
    char *real = realpath(file->path, NULL);
    if (!real) CLI_REFUSE("%s: cannot write %s: %s", file->what, file->path, strerror(errno));
    output_file behind = {.what = file->what, .path = real};
    ra_status status = resolve(&behind);
    file->target = behind.target;
    free(real);
    return status;
}

ra_status outputs_check(output_set *set) {
    for (int i = 0; i < set->count; ++i) {
        CLI_TRY(check_target(&set->files[i]));
        for (int j = 0; j < i; ++j)
            if (strcmp(set->files[i].target, set->files[j].target) == 0)
                CLI_REFUSE("%s: %s is also the file of %s; give each output its own", set->files[i].what,
                           set->files[i].path, set->files[j].what);
    }
    return RA_OK;
}

ra_status outputs_check_input(const output_set *set, const char *what, const char *path) {
    char *real = path ? realpath(path, NULL) : NULL;
    ra_status status = RA_OK;
    for (int i = 0; real && status == RA_OK && i < set->count; ++i)
        if (strcmp(set->files[i].target, real) == 0)
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

static ra_status name_partial(output_file *file, const char *token) {
    size_t bytes = strlen(file->target) + strlen(token) + sizeof ".partial-";
    file->partial = malloc(bytes);
    if (!file->partial) return ra_fail(RA_ERR_MEMORY, "%s: no memory for its name", file->what);
    snprintf(file->partial, bytes, "%s.partial-%s", file->target, token);
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
        if (__builtin_mul_overflow(total, file->shape[i], &total)) CLI_REFUSE("%s: the array is too large", file->what);
    if (__builtin_add_overflow(total, (int64_t)bytes, &total)) CLI_REFUSE("%s: the array is too large", file->what);
    file->data_offset = (int64_t)bytes;
    if (ftruncate(file->fd, (off_t)total) != 0) return cannot(file, "make");
    return rows_pwrite(file->what, file->fd, header, bytes, 0);
}

ra_status outputs_create(output_set *set, const char *token) {
    catch_signals();
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        CLI_TRY(name_partial(file, token));
        file->fd = open(file->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd < 0) {
            free(file->partial);
            file->partial = NULL;
            return cannot(file, "make");
        }
        unfinished[i] = file->partial;
        CLI_TRY(fill_header(file));
    }
    return RA_OK;
}

ra_status outputs_attach(output_set *set, const char *token) {
    catch_signals();
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        char header[NPY_WRITE_BYTES];
        CLI_TRY(name_partial(file, token));
        unfinished[i] = file->partial;
        file->fd = open(file->partial, O_RDWR | O_CLOEXEC);
        if (file->fd < 0) return cannot(file, "open");
        file->data_offset = (int64_t)npy_format(file->dtype, file->dims, file->shape, header);
    }
    return RA_OK;
}

static ra_status close_all(output_set *set) {
    for (int i = 0; i < set->count; ++i) {
        int closed = close(set->files[i].fd);
        set->files[i].fd = -1;
        if (closed != 0) return cannot(&set->files[i], "write");
    }
    return RA_OK;
}

ra_status outputs_leave(output_set *set) {
    for (int i = 0; i < set->count; ++i) {
        unfinished[i] = NULL;
        free(set->files[i].partial);
        set->files[i].partial = NULL;
    }
    return close_all(set);
}

ra_status outputs_commit(output_set *set) {
    CLI_TRY(close_all(set));
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        if (rename(file->partial, file->target) != 0) return cannot(file, "put in place");
        unfinished[i] = NULL;
        free(file->partial);
        file->partial = NULL;
    }
    return RA_OK;
}

void outputs_discard(output_set *set) {
    for (int i = 0; i < set->count; ++i) {
        output_file *file = &set->files[i];
        unfinished[i] = NULL;
        if (file->fd >= 0) close(file->fd);
        if (file->partial) unlink(file->partial);
        free(file->partial);
        free(file->target);
    }
    *set = (output_set){0};
}
