/* A library that looks like NCCL to the one who opens it; no function does anything, and the version is nobody's. */
#include "transport/nccl/nccl_api.h"

__attribute__((visibility("default"))) int ncclGetVersion(int *version) {
    *version = 99999;
    return RA_NCCL_SUCCESS;
}

#define FAKE(name)                                                                                                     \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void) {                                                                                                   \
        return RA_NCCL_SUCCESS;                                                                                        \
    }
FAKE(ncclGetErrorString)
FAKE(ncclGetLastError)
FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRankConfig)
FAKE(ncclCommFinalize)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclCommGetAsyncError)
FAKE(ncclCommCount)
FAKE(ncclCommUserRank)
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)
FAKE(ncclSend)
FAKE(ncclRecv)
