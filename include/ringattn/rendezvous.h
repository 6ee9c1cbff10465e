/* How processes that know nothing of each other but a folder, or an address and a key, become ranks of one job: they
 * meet, and bring small blocks of bytes round until they have a comm. */
#ifndef RINGATTN_RENDEZVOUS_H
#define RINGATTN_RENDEZVOUS_H

#include <ringattn/ringattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective: every rank gives `bytes` bytes, the same number; all_out [ranks * bytes] gets everyone's in rank order.
 * A function that fails describes the error with ra_fail where it can. MPI_Allgather, a torch store or files will all
 * do. */
typedef ra_status (*ra_allgather)(void *user, const void *mine, size_t bytes, void *all_out);

/* A meeting of ranks, used by one thread at a time. */
typedef struct ra_rendezvous ra_rendezvous;

/* Meets in a folder that all ranks see: on one machine, or shared. It is made with mode 0700 when it is not there; one
 * that belongs to somebody else, that others may enter, or that is a symbolic link is refused. One folder is for one
 * job at a time, unless each job has a key of its own (RINGATTN_JOB_KEY, any text): then none sees the others. Without
 * keys two jobs that meet in one folder at about the same time are both refused. What a job that died left behind is
 * cleared away by the next. Every wait, here and in ra_rendezvous_allgather, ends after timeout_seconds. */
RA_API ra_status ra_rendezvous_folder(const char *path, int rank, int ranks, double timeout_seconds,
                                      ra_rendezvous **rendezvous_out);

/* Meets at a TCP port of rank 0's, which listens on `address` (a name or a number; the other ranks connect to it) and
 * nowhere else. Whoever does not prove that it knows `key` is turned away; the key itself is not sent. It must not be
 * empty. Once all ranks have come nobody listens any more. */
RA_API ra_status ra_rendezvous_tcp(const char *address, int port, const char *key, int rank, int ranks,
                                   double timeout_seconds, ra_rendezvous **rendezvous_out);

/* The same with what torchrun and its like put into the environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and
 * the key from RINGATTN_JOB_KEY. RINGATTN_PORT, where set, is the port; else, where torchrun itself listens on
 * MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True), the one after it. */
RA_API ra_status ra_rendezvous_environment(double timeout_seconds, ra_rendezvous **rendezvous_out);

RA_API int ra_rendezvous_rank(const ra_rendezvous *rendezvous);
RA_API int ra_rendezvous_ranks(const ra_rendezvous *rendezvous);

/* An ra_allgather: rendezvous is an ra_rendezvous. After an error the meeting is over: destroy it. */
RA_API ra_status ra_rendezvous_allgather(void *rendezvous, const void *mine, size_t bytes, void *all_out);

/* NULL is allowed. A rank that leaves before the others are done with what it gave does not spoil it. */
RA_API void ra_rendezvous_destroy(ra_rendezvous *rendezvous);

#ifdef __cplusplus
}
#endif
#endif
