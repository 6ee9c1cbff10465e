/* Ranks over UCX: processes that no MPI started, on one machine (shared memory) or many (TCP, RDMA). libucp is opened
 * at run time (where the process has loaded one already, that one), so nothing links it; where there is none every call
 * here fails and says what to install.
 *
 *     ra_rendezvous *meeting;                                        or any other way to bring bytes round
 *     ra_rendezvous_folder("/shared/job-17", rank, ranks, 60, &meeting);
 *     ra_comm_create_ucx(rank, ranks, ra_rendezvous_allgather, meeting, NULL, &comm);
 *     ra_rendezvous_destroy(meeting);
 *
 * docs/ucx.md has more, and whom the ports of a job trust.
 */
#ifndef RINGATTN_UCX_H
#define RINGATTN_UCX_H

#include <ringattn/rendezvous.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ra_ucx_options {
    size_t struct_size;
    const char *transports; /* what UCX may use, written as UCX_TLS: "tcp", "shm,self"; NULL: as that variable says */
    const char *devices;    /* which networks, written as UCX_NET_DEVICES: "lo", "eth0"; NULL: as that variable says */
    double create_seconds;  /* timeout of ra_comm_create_ucx, beside allgather's own waits; 0: RA_TIMEOUT_DEFAULT */
    double destroy_seconds; /* timeout of ra_comm_destroy; 0: 5 s */
} ra_ucx_options;
#define RA_UCX_OPTIONS_INIT                                                                                            \
    { .struct_size = sizeof(ra_ucx_options) }
RA_API void ra_ucx_options_init(ra_ucx_options *options_out);

/* Collective: the calls of `ranks` processes (or threads), each with a rank of its own from 0. allgather brings
 * addresses round; it is called three times, by every rank and with the same number of bytes, and not after this call
 * has returned; user is given to it. A rank that cannot take part for a reason of its own says so to the others in it,
 * so that all of them fail with that reason; only one that has no memory for what allgather brings does not call it,
 * and leaves the others to allgather's own waits. options may be NULL.
 *
 * Every rank is connected with every other. The comm may be used by any one thread at a time; several comms of one
 * process may be used at once. ra_comm_destroy is collective as well. The library opened is never closed, starts no
 * thread of ours (UCX has one that serves connections), and leaves the host program's signal handlers as they are. */
RA_API ra_status ra_comm_create_ucx(int rank, int ranks, ra_allgather allgather, void *user,
                                    const ra_ucx_options *options, ra_comm **comm_out);

/* The version of the UCX that is used, "1.13.1"; or why there is none. *version_out is valid for ever. */
RA_API ra_status ra_ucx_version(const char **version_out);

#ifdef __cplusplus
}
#endif
#endif
