#define _DEFAULT_SOURCE /* flock */
#include "transport/rendezvous/folder.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* Asked of the descriptor: what was checked is what is used. */
static ra_status check_owner(const ra_folder *folder) {
    struct stat s;
    if (fstat(folder->descriptor, &s) != 0) return ra_refuse("the folder %s: %s", folder->path, strerror(errno));
    if (s.st_uid != geteuid())
        return ra_refuse(
            "the folder %s belongs to user %ld, not to this one (%ld): ranks meet in a folder of their own user's",
            folder->path, (long)s.st_uid, (long)geteuid());
    if (s.st_mode & 077)
        return ra_refuse(
            "the folder %s may be entered by others (mode %03o): chmod 700 it, or whoever can write there could join "
            "the job",
            folder->path, (unsigned)(s.st_mode & 0777));
    return RA_OK;
}

ra_status ra_folder_open(const char *path, ra_folder *folder_out) {
    ra_folder folder = {.descriptor = -1};
    if (!path || !*path) return ra_refuse("the folder to meet in has no name");
    if (strlen(path) >= sizeof folder.path) return ra_refuse("the name of the folder to meet in is too long");
    snprintf(folder.path, sizeof folder.path, "%s", path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return ra_refuse("the folder %s cannot be made: %s", path, strerror(errno));
    folder.descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder.descriptor < 0) {
        if (errno == ELOOP || errno == ENOTDIR)
            return ra_refuse("%s is a symbolic link or no folder: ranks meet in a folder itself", path);
        return ra_refuse("the folder %s cannot be opened: %s", path, strerror(errno));
    }
    ra_status status = check_owner(&folder);
    if (status != RA_OK)
        close(folder.descriptor);
    else
        *folder_out = folder;
    return status;
}

void ra_folder_close(ra_folder *folder) {
    if (folder->descriptor >= 0) close(folder->descriptor);
    folder->descriptor = -1;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static ra_status write_all(int file, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t done = write(file, data, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return ra_fail(RA_ERR_TRANSPORT, "%s", strerror(errno));
        data += done;
        bytes -= (size_t)done;
    }
    return RA_OK;
}

/* Written under a name of this process's own first, and then renamed. */
ra_status ra_folder_write(const ra_folder *folder, const char *name, const void *data, size_t bytes) {
    char temporary[RA_FOLDER_NAME + 32];
    snprintf(temporary, sizeof temporary, "%s.part%ld", name, (long)getpid());
    unlinkat(folder->descriptor, temporary, 0);
    int file = openat(folder->descriptor, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return ra_fail(RA_ERR_TRANSPORT, "%s/%s cannot be written: %s", folder->path, name, strerror(errno));
    ra_status status = write_all(file, data, bytes);
    if (close(file) != 0 && status == RA_OK) status = ra_fail(RA_ERR_TRANSPORT, "%s", strerror(errno));
    if (status == RA_OK && renameat(folder->descriptor, temporary, folder->descriptor, name) != 0)
        status = ra_fail(RA_ERR_TRANSPORT, "%s", strerror(errno));
    if (status == RA_OK) return RA_OK;
    unlinkat(folder->descriptor, temporary, 0);
    return ra_fail(status, "%s/%s cannot be written: %s", folder->path, name, ra_last_error());
}

static ra_status read_all(int file, char *data, size_t capacity) {
    while (capacity > 0) {
        ssize_t got = read(file, data, capacity);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ra_fail(RA_ERR_TRANSPORT, "%s", strerror(errno));
        if (got == 0) break;
        data += got;
        capacity -= (size_t)got;
    }
    return RA_OK;
}

static ra_status check_file(int file) {
    struct stat s;
    if (fstat(file, &s) != 0) return ra_fail(RA_ERR_TRANSPORT, "%s", strerror(errno));
    if (!S_ISREG(s.st_mode) || s.st_uid != geteuid())
        return ra_fail(RA_ERR_ARGUMENT, "it is no plain file of this user's");
    return RA_OK;
}

ra_status ra_folder_read(const ra_folder *folder, const char *name, void *data_out, size_t capacity, size_t *bytes_out,
                         int *found_out) {
    struct stat s;
    int file = openat(folder->descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *found_out = 0;
    if (file < 0 && (errno == ENOENT || errno == ESTALE)) return RA_OK;
    if (file < 0) return ra_fail(RA_ERR_ARGUMENT, "%s/%s cannot be read: %s", folder->path, name, strerror(errno));
    ra_status status = check_file(file);
    if (status == RA_OK) status = read_all(file, data_out, capacity);
    if (status == RA_OK) *bytes_out = fstat(file, &s) == 0 ? (size_t)s.st_size : 0;
    close(file);
    if (status != RA_OK) return ra_fail(status, "%s/%s cannot be read: %s", folder->path, name, ra_last_error());
    *found_out = 1;
    return RA_OK;
}

int ra_folder_has(const ra_folder *folder, const char *name) {
    struct stat s;
    return fstatat(folder->descriptor, name, &s, AT_SYMLINK_NOFOLLOW) == 0;
}

void ra_folder_remove(const ra_folder *folder, const char *name) {
    unlinkat(folder->descriptor, name, 0);
}

ra_status ra_folder_visit(const ra_folder *folder, const char *prefix, void (*visit)(void *user, const char *name),
                          void *user) {
    int again = openat(folder->descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    if (!list) {
        ra_status status =
            ra_fail(RA_ERR_TRANSPORT, "the folder %s cannot be listed: %s", folder->path, strerror(errno));
        if (again >= 0) close(again);
        return status;
    }
    for (struct dirent *entry; (entry = readdir(list));)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && strlen(entry->d_name) < RA_FOLDER_NAME)
            visit(user, entry->d_name);
    closedir(list);
    return RA_OK;
}

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

/* Its owner removes the file before it lets go: a lock on a file that is there no more is none. */
static int still_there(const ra_folder *folder, const char *name, int file) {
    struct stat mine, there;
    return fstat(file, &mine) == 0 && fstatat(folder->descriptor, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_ino == there.st_ino;
}

ra_status ra_folder_lock(const ra_folder *folder, const char *name, int *lock_out) {
    for (;;) {
        int file = openat(folder->descriptor, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0) return ra_fail(RA_ERR_ARGUMENT, "%s/%s cannot be made: %s", folder->path, name, strerror(errno));
        int locked = flock(file, LOCK_EX | LOCK_NB) == 0, why = errno;
        if (locked && still_there(folder, name, file)) {
            *lock_out = file;
            return RA_OK;
        }
        close(file);
        if (locked) continue;
        *lock_out = -1;
        if (why == EWOULDBLOCK) return RA_OK;
        return ra_fail(RA_ERR_ARGUMENT, "%s/%s cannot be locked: %s", folder->path, name, strerror(why));
    }
}
