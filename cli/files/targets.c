#include "files/targets.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINKS_MAX = 40, /* as the kernel's own limit */
    DESCRIPTORS_LOOKED = 256,
    PARTIAL_NAME_BYTES = 80 /* at least as long as any name that outputs.c makes beside the target */
};

static ra_status cannot_write(const char *what, const char *path, int error) {
    CLI_RETURN_REFUSAL("%s: cannot write %s: %s", what, path, strerror(error));
}

static char *join(const char *folder, const char *name) {
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
    return path;
}

/* What stands before the last slash of path: "." for a mere name, "/" for one in the root. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = strdup(slash ? path : ".");
    if (folder && slash) folder[slash == path ? 1 : slash - path] = '\0';
    return folder;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- regular files --------------------------------------------------------------------------------------------- */

/* Replaces *path, a link, by what it says, seen from the link's own folder. */
static int follow_once(char **path) {
    char said[PATH_MAX], *folder = folder_of(*path), *next = NULL;
    ssize_t length = readlink(*path, said, sizeof said - 1);
    if (folder && length > 0) {
        said[length] = '\0';
        next = said[0] == '/' ? strdup(said) : join(folder, said);
    }
    free(folder);
    if (!next) return 0;
    free(*path);
    *path = next;
    return 1;
}

/* A link that leads nowhere yet names the file that is to be: path without its last links. NULL: no memory, or links
 * without an end. */
static char *follow(const char *path) {
    char *at = strdup(path);
    struct stat info;
    for (int i = 0; at && i < LINKS_MAX; ++i) {
        if (lstat(at, &info) != 0 || !S_ISLNK(info.st_mode)) return at;
        if (!follow_once(&at)) break;
    }
    free(at);
    return NULL;
}

/* The real names of a file that need not exist in a folder that must. */
static ra_status find_folder(const char *what, const char *said, const char *path, output_target *target) {
    char *folder = folder_of(path);
    if (!folder) return ra_fail(RA_ERR_MEMORY, "%s: no memory for its name", what);
    target->folder = realpath(folder, NULL);
    free(folder);
    if (!target->folder) return cannot_write(what, said, errno);
    if (access(target->folder, W_OK | X_OK) != 0) return cannot_write(what, said, errno);
    if (strlen(target->folder) + PARTIAL_NAME_BYTES > PATH_MAX) return cannot_write(what, said, ENAMETOOLONG);
    target->path = join(target->folder, name_of(path));
    return target->path ? RA_OK : ra_fail(RA_ERR_MEMORY, "%s: no memory for its name", what);
}

static ra_status find_absent(const char *what, const char *path, output_target *target) {
    char *end = follow(path);
    ra_status status;
    if (!end)
        status = cannot_write(what, path, ELOOP);
    else if (name_of(end)[0] == '\0')
        status = ra_fail(RA_ERR_ARGUMENT, "%s: %s names a folder, not a file", what, path);
    else
        status = find_folder(what, path, end, target);
    free(end);
    return status;
}

static ra_status find_regular(const char *what, const char *path, output_target *target) {
    if (access(path, W_OK) != 0) return cannot_write(what, path, errno);
    char *real = realpath(path, NULL);
    if (!real) return cannot_write(what, path, errno);
    ra_status status = find_folder(what, path, real, target);
    target->replaces = 1;
    free(real);
    return status;
}

int target_dress(const output_target *target, int fd) {
    if (!target->replaces) return 0;
    const struct stat *before = &target->before;
    mode_t mode = before->st_mode & 07777;
    /* A file cannot always be given away; then at least its group, and never the rights of an owner it does not have.
     */
    if (fchown(fd, before->st_uid, before->st_gid) != 0 && fchown(fd, (uid_t)-1, before->st_gid) != 0)
        mode &= ~(mode_t)(S_ISUID | S_ISGID);
    return fchmod(fd, mode);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* A descriptor of this process that can be written and leads to that file; -1: none. */
static int own_descriptor(const struct stat *info) {
    for (int fd = 0; fd < DESCRIPTORS_LOOKED; ++fd) {
        struct stat own;
        int flags = fcntl(fd, F_GETFL);
        if (flags == -1 || (flags & O_ACCMODE) == O_RDONLY || fstat(fd, &own) != 0) continue;
        if (own.st_dev == info->st_dev && own.st_ino == info->st_ino) return fd;
    }
    return -1;
}

/* A pipe is not waited for, but its reader, started with this process, may be a moment late. */
static int open_stream(const char *path) {
    int fd = -1;
    for (int i = 0; i < 20 && fd < 0; ++i) {
        if (i) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 && errno != ENXIO) break;
    }
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

static ra_status find_stream(const char *what, const char *path, int own, int opens, output_target *target) {
    if (!opens) return RA_OK;
    target->stream = own >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0) : open_stream(path);
    if (target->stream >= 0) return RA_OK;
    if (errno == ENXIO) CLI_RETURN_REFUSAL("%s: %s is a pipe that nobody reads", what, path);
    return cannot_write(what, path, errno);
}

/* ---- either ---------------------------------------------------------------------------------------------------- */

static ra_status find(const char *what, const char *path, int takes_stream, int opens, output_target *target) {
    struct stat *info = &target->before;
    if (stat(path, info) != 0)
        return errno == ENOENT ? find_absent(what, path, target) : cannot_write(what, path, errno);
    if (S_ISDIR(info->st_mode)) CLI_RETURN_REFUSAL("%s: %s is a folder", what, path);
    int own = own_descriptor(info);
    if (S_ISREG(info->st_mode) && own < 0) return find_regular(what, path, target);
    if (takes_stream) return find_stream(what, path, own, opens, target);
    if (S_ISREG(info->st_mode))
        CLI_RETURN_REFUSAL("%s: %s is what descriptor %d of this process writes to; give a file of its own", what, path,
                           own);
    CLI_RETURN_REFUSAL(
        "%s: %s exists and is not a regular file, which an array needs: its rows are written in any order", what, path);
}

ra_status target_find(const char *what, const char *path, int takes_stream, int opens, output_target *target_out) {
    *target_out = (output_target){.stream = -1};
    ra_status status = find(what, path, takes_stream, opens, target_out);
    if (status != RA_OK) target_free(target_out);
    return status;
}

void target_free(output_target *target) {
    if (target->stream >= 0) close(target->stream);
    free(target->folder);
    free(target->path);
    *target = (output_target){.stream = -1};
}
