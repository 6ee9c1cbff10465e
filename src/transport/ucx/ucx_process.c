/* Processes of one machine. Over shared memory no connection breaks when a peer dies, and UCX's keepalive takes one
 * that is dead but not yet waited for by its parent for alive; the kernel knows better, through a descriptor of the
 * process. */
#define _GNU_SOURCE /* syscall */
#include "transport/ucx/ucx_transport.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const double LOOK_SECONDS = 0.01;

static size_t read_file(const char *path, char *text_out, size_t capacity) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text_out, capacity - 1);
    if (file >= 0) close(file);
    text_out[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

/* In ticks since the machine started; 0: not known. The 22nd field, counted behind the name, which may have anything.
 */
static uint64_t start_of(uint64_t pid) {
    char path[64], text[1024];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    read_file(path, text, sizeof text);
    const char *field = strrchr(text, ')');
    for (int i = 2; field && i < 22; i++) {
        field = strchr(field, ' ');
        if (field) field++;
    }
    if (field) sscanf(field, "%llu", &start);
    return start;
}

/* Drawn by the kernel when it starts, as text with 32 hexadecimal digits; else the machine's name. */
static void identify_machine(unsigned char *machine_out) {
    char text[64] = "";
    int digits = 0;
    memset(machine_out, 0, 16);
    read_file("/proc/sys/kernel/random/boot_id", text, sizeof text);
    for (const char *c = text; *c && digits < 32; c++) {
        unsigned digit;
        if (*c == '-' || sscanf((char[]){*c, 0}, "%x", &digit) != 1) continue;
        machine_out[digits / 2] = (unsigned char)(machine_out[digits / 2] << 4 | digit);
        digits++;
    }
    if (digits == 0 && gethostname(text, sizeof text - 1) == 0) memcpy(machine_out, text, 16);
}

/* 0: not known. */
static uint64_t name_space(const char *path) {
    struct stat space;
    return stat(path, &space) == 0 ? (uint64_t)space.st_ino : 0;
}

int ra_ucx_share_memory(const ra_ucx_identity *a, const ra_ucx_identity *b) {
    return memcmp(a->machine, b->machine, sizeof a->machine) == 0 && a->processes && a->processes == b->processes &&
           a->memory && a->memory == b->memory && a->files && a->files == b->files;
}

int ra_ucx_share_loopback(const ra_ucx_identity *a, const ra_ucx_identity *b) {
    return memcmp(a->machine, b->machine, sizeof a->machine) == 0 && a->network && a->network == b->network;
}

void ra_ucx_identify(ra_ucx_identity *identity_out) {
    memset(identity_out, 0, sizeof *identity_out);
    identify_machine(identity_out->machine);
    identity_out->processes = name_space("/proc/self/ns/pid");
    identity_out->memory = name_space("/proc/self/ns/ipc");
    identity_out->files = name_space("/proc/self/ns/mnt");
    identity_out->network = name_space("/proc/self/ns/net");
    identity_out->pid = (uint64_t)getpid();
    identity_out->start = start_of(identity_out->pid);
}

int ra_ucx_watch(const ra_ucx_identity *mine, const ra_ucx_identity *other, int *ended_out) {
    int process = -1;
    *ended_out = 0;
    if (memcmp(mine->machine, other->machine, sizeof mine->machine) != 0) return -1;
    if (!mine->processes || mine->processes != other->processes || !other->start || mine->pid == other->pid) return -1;
#ifdef SYS_pidfd_open
    process = (int)syscall(SYS_pidfd_open, (pid_t)other->pid, 0);
#endif
    /* Asked after it was opened: the descriptor is then of the process that has the number at this time, or of nobody.
     */
    *ended_out = start_of(other->pid) != other->start;
    return process;
}

void ra_ucx_look(ra_ucx *ucx) {
    double t = ra_clock();
    if (t < ucx->look_next) return;
    ucx->look_next = t + LOOK_SECONDS;
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        struct pollfd asked = {.fd = p->process, .events = POLLIN};
        if (p->process >= 0 && !p->ended && poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN)) p->ended = 1;
    }
}
