/* Plans on NVIDIA GPUs; in libringattn_cuda. No CUDA header is needed: devices are ordinals, a stream is a cudaStream_t
 * and an NCCL communicator an ncclComm_t, both given as pointers.
 *
 *     const ra_backend *backend;
 *     ra_cuda_backend(0, &backend);
 *     options.backend = backend;
 *     ra_plan_create(comm, &problem, &options, &plan);      tensors are then device pointers
 *     ra_plan_forward(plan, &tensors, stream);              returns when the work is on the stream
 *
 * In-process ranks (ra_comm_create_threads) may share a GPU or have one each. Processes use NCCL, or a UCX that knows
 * CUDA; over MPI, or a transport of one's own, messages go through pinned host memory. docs/cuda.md has more.
 */
#ifndef RINGATTN_CUDA_H
#define RINGATTN_CUDA_H

#include <ringattn/ringattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many devices there are; 0 also where there is no driver. */
RA_API int ra_cuda_devices(void);

typedef struct ra_cuda_device_info {
    size_t struct_size;
    char name[256];
    int64_t memory_bytes;
    int major, minor; /* compute capability */
    int multiprocessors;
} ra_cuda_device_info;
#define RA_CUDA_DEVICE_INFO_INIT                                                                                       \
    { .struct_size = sizeof(ra_cuda_device_info) }
RA_API void ra_cuda_device_info_init(ra_cuda_device_info *info_out);

RA_API ra_status ra_cuda_describe(int device, ra_cuda_device_info *info_out);

/* The backend of a device: the same pointer every time, valid as long as the library is loaded. */
RA_API ra_status ra_cuda_backend(int device, const ra_backend **backend_out);

/* Whether there is an NCCL. libnccl.so.2, 2.14 or later, is opened at run time: the one that the process has loaded
 * already, else one that is found by name. Where there is none, ra_comm_create_nccl fails and says so. */
RA_API int ra_cuda_has_nccl(void);

/* Collective over host, whose ranks the new comm has; each gives a device of its own. NCCL's unique id goes round over
 * host, which also carries what is in host memory (agreeing on a plan, ra_comm_allgather) and the news of a failure; it
 * must outlive the new comm and may not be used beside it. When one rank cannot (a wrong device, no memory) every rank
 * gets an error. Every wait has a deadline, here of timeout_seconds. */
RA_API ra_status ra_comm_create_nccl(ra_comm *host, int device, double timeout_seconds, ra_comm **comm_out);

/* The same over an ncclComm_t of the caller's, which has the same ranks as host. It should be a non-blocking one
 * (ncclConfig_t.blocking = 0), or a dead peer may be met inside NCCL, where no deadline holds. It stays the caller's,
 * unless the comm is lost: it is then aborted, and must not be destroyed. */
RA_API ra_status ra_comm_wrap_nccl(ra_comm *host, void *nccl, int device, ra_comm **comm_out);

#ifdef __cplusplus
}
#endif
#endif
