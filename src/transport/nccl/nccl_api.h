/* NCCL's functions, found in libnccl.so.2 at run time: the one that the process has loaded already, as a Python process
 * has torch's, else one by name. What is used of its interface is declared here, under names of our own, so that
 * building needs no NCCL; it is in version 2.14, the first with communicators that do not block, and NCCL keeps it
 * within libnccl.so.2. tests/unit/transport/test_nccl_api.c compares it with nccl.h where there is one. */
#ifndef RA_TRANSPORT_NCCL_NCCL_API_H
#define RA_TRANSPORT_NCCL_NCCL_API_H

#include <ringattn/ringattn.h>

/* ncclResult_t and ncclDataType_t, those that are looked at. */
enum { RA_NCCL_SUCCESS = 0, RA_NCCL_REMOTE_ERROR = 6, RA_NCCL_IN_PROGRESS = 7 };
enum { RA_NCCL_UINT8 = 1 };

/* ncclUniqueId. */
typedef struct ra_nccl_id {
    char internal[128];
} ra_nccl_id;

/* ncclConfig_t as of 2.14; a later library takes the defaults for what it has beyond that. */
typedef struct ra_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} ra_nccl_config;
#define RA_NCCL_CONFIG_MAGIC 0xcafebeefu
#define RA_NCCL_CONFIG_VERSION 21400u

/* result, name, parameters. An ncclComm_t and a cudaStream_t are pointers. */
#define RA_NCCL_FUNCTIONS(X)                                                                                           \
    X(int, ncclGetVersion, (int *version))                                                                             \
    X(const char *, ncclGetErrorString, (int result))                                                                  \
    X(const char *, ncclGetLastError, (void *comm))                                                                    \
    X(int, ncclGetUniqueId, (ra_nccl_id * id))                                                                         \
    X(int, ncclCommInitRankConfig, (void **comm, int ranks, ra_nccl_id id, int rank, ra_nccl_config *config))          \
    X(int, ncclCommFinalize, (void *comm))                                                                             \
    X(int, ncclCommDestroy, (void *comm))                                                                              \
    X(int, ncclCommAbort, (void *comm))                                                                                \
    X(int, ncclCommGetAsyncError, (void *comm, int *result))                                                           \
    X(int, ncclCommCount, (void *comm, int *ranks))                                                                    \
    X(int, ncclCommUserRank, (void *comm, int *rank))                                                                  \
    X(int, ncclGroupStart, (void))                                                                                     \
    X(int, ncclGroupEnd, (void))                                                                                       \
    X(int, ncclSend, (const void *data, size_t count, int type, int peer, void *comm, void *stream))                   \
    X(int, ncclRecv, (void *data, size_t count, int type, int peer, void *comm, void *stream))

typedef struct ra_nccl_api {
#define RA_NCCL_POINTER(result, name, parameters) result(*name) parameters;
    RA_NCCL_FUNCTIONS(RA_NCCL_POINTER)
#undef RA_NCCL_POINTER
} ra_nccl_api;

/* The process's one table; opens the library the first time. Where there is none, RA_ERR_UNSUPPORTED and a sentence;
 * later calls try again, since a library may have been loaded in between. */
ra_status ra_nccl_load(const ra_nccl_api **api_out);

/* Fills the table from a library of that name, if one is loaded already from that one: for ra_nccl_load, and for tests.
 */
ra_status ra_nccl_open_library(const char *name, ra_nccl_api *api_out);

#endif
