#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <ringattn/rendezvous.h>
#include <stdlib.h>
#include <string.h>

static ra_status read_text(const char *name, const char **text_out) {
    const char *text = getenv(name);
    if (!text || !*text)
        return ra_refuse("%s is not set: a job that torchrun or its like starts has RANK, WORLD_SIZE, MASTER_ADDR and "
                         "MASTER_PORT in "
                         "its environment",
                         name);
    *text_out = text;
    return RA_OK;
}

static ra_status read_number(const char *name, int *number_out) {
    const char *text = NULL;
    char *end;
    RA_TRY(read_text(name, &text));
    errno = 0;
    long number = strtol(text, &end, 10);
    if (*end || end == text || errno || number < 0 || number > INT_MAX)
        return ra_refuse("%s is \"%s\", not a number", name, text);
    *number_out = (int)number;
    return RA_OK;
}

/* Where torchrun keeps its own store on MASTER_PORT, the next port is as good as any that all ranks can find out. */
static ra_status find_port(int *port_out) {
    const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (getenv("RINGATTN_PORT")) return read_number("RINGATTN_PORT", port_out);
    RA_TRY(read_number("MASTER_PORT", port_out));
    if (store && strcmp(store, "True") == 0 && *port_out < 65535) ++*port_out;
    return RA_OK;
}

ra_status ra_rendezvous_environment(double timeout_seconds, ra_rendezvous **rendezvous_out) {
    const char *address = NULL;
    int rank = 0, ranks = 0, port = 0;
    RA_TRY(read_number("RANK", &rank));
    RA_TRY(read_number("WORLD_SIZE", &ranks));
    RA_TRY(read_text("MASTER_ADDR", &address));
    RA_TRY(find_port(&port));
    return ra_rendezvous_tcp(address, port, getenv("RINGATTN_JOB_KEY"), rank, ranks, timeout_seconds, rendezvous_out);
}
