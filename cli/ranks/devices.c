#include "ranks/devices.h"

#include "cli.h"

#include <stdio.h>

#ifdef RA_HAVE_CUDA
#include <ringattn/cuda.h>

ra_status devices_ordinal(const cli_options *options, int rank, int *ordinal_out) {
    int64_t device = cli_list_at(options->device, 0, CLI_DEVICE_CPU);
    int count = ra_cuda_devices();
    *ordinal_out = -1;
    if (device == CLI_DEVICE_CPU) return RA_OK;
    if (count == 0)
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "--device cuda: there is no CUDA device here, or no driver; use --device cpu");
    int ordinal = device == CLI_DEVICE_CUDA ? rank % count : (int)(device - CLI_DEVICE_CUDA - 1);
    if (ordinal >= count)
        CLI_RETURN_REFUSAL("--device: there is no cuda:%d; this machine has cuda:0 to cuda:%d", ordinal, count - 1);
    *ordinal_out = ordinal;
    return RA_OK;
}

ra_status devices_choose(const cli_options *options, int rank, ra_options *how) {
    int ordinal;
    CLI_RETURN_ON_ERROR(devices_ordinal(options, rank, &ordinal));
    return ordinal < 0 ? RA_OK : ra_cuda_backend(ordinal, &how->backend);
}

ra_status devices_nccl(const cli_options *options, ra_comm *host, double timeout_seconds, ra_comm **comm_out) {
    int ordinal;
    CLI_RETURN_ON_ERROR(devices_ordinal(options, ra_comm_rank(host), &ordinal));
    return ra_comm_create_nccl(host, ordinal, timeout_seconds, comm_out);
}

int devices_have_nccl(void) {
#ifdef RA_HAVE_MPI
    return ra_cuda_has_nccl();
#else
    return 0;
#endif
}

static ra_cuda_device_info describe(int device) {
    ra_cuda_device_info info = RA_CUDA_DEVICE_INFO_INIT;
    if (ra_cuda_describe(device, &info) != RA_OK) snprintf(info.name, sizeof info.name, "%s", ra_last_error());
    return info;
}

void devices_write_json(json_writer *json) {
    const ra_backend *first = NULL;
    char text[32];
    json_open(json, "devices", '[');
    json_text(json, NULL, "cpu");
    for (int i = 0; i < ra_cuda_devices(); ++i) {
        snprintf(text, sizeof text, "cuda:%d", i);
        json_text(json, NULL, text);
    }
    json_close(json, ']');
    json_open(json, "cuda_devices", '[');
    for (int i = 0; i < ra_cuda_devices(); ++i) {
        ra_cuda_device_info info = describe(i);
        json_open(json, NULL, '{');
        snprintf(text, sizeof text, "cuda:%d", i);
        json_text(json, "device", text);
        json_text(json, "name", info.name);
        json_int(json, "memory_bytes", info.memory_bytes);
        snprintf(text, sizeof text, "%d.%d", info.major, info.minor);
        json_text(json, "compute_capability", text);
        json_int(json, "multiprocessors", info.multiprocessors);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json, "cuda_kernels", '[');
    if (ra_cuda_backend(0, &first) == RA_OK)
        for (int i = 0; ra_backend_kernel(first, i); ++i) {
            json_open(json, NULL, '{');
            json_text(json, "name", ra_backend_kernel(first, i));
            json_bool(json, "usable", ra_backend_kernel_usable(first, i));
            json_close(json, '}');
        }
    json_close(json, ']');
}

void devices_print(void) {
    const ra_backend *first = NULL;
    printf("devices       cpu\n");
    for (int i = 0; i < ra_cuda_devices(); ++i) {
        ra_cuda_device_info info = describe(i);
        printf("              cuda:%d %s, %.1f GiB, compute capability %d.%d\n", i, info.name,
               (double)info.memory_bytes / (1 << 30), info.major, info.minor);
    }
    if (ra_cuda_devices() == 0) printf("              no CUDA device, or no driver\n");
    if (ra_cuda_backend(0, &first) != RA_OK) return;
    printf("cuda kernels ");
    for (int i = 0; ra_backend_kernel(first, i); ++i)
        printf(" %s%s", ra_backend_kernel(first, i), ra_backend_kernel_usable(first, i) ? "" : " (not on cuda:0)");
    printf("\n");
}
#else
ra_status devices_ordinal(const cli_options *options, int rank, int *ordinal_out) {
    (void)rank;
    *ordinal_out = -1;
    if (cli_list_at(options->device, 0, CLI_DEVICE_CPU) == CLI_DEVICE_CPU) return RA_OK;
    return ra_fail(RA_ERR_UNSUPPORTED, "--device cuda: this ringattn was built without CUDA; use --device cpu");
}

ra_status devices_choose(const cli_options *options, int rank, ra_options *how) {
    int ordinal;
    (void)how;
    return devices_ordinal(options, rank, &ordinal);
}

ra_status devices_nccl(const cli_options *options, ra_comm *host, double timeout_seconds, ra_comm **comm_out) {
    (void)options, (void)host, (void)timeout_seconds, (void)comm_out;
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport nccl: this ringattn was built without CUDA; use --transport mpi");
}

int devices_have_nccl(void) {
    return 0;
}

void devices_write_json(json_writer *json) {
    json_open(json, "devices", '[');
    json_text(json, NULL, "cpu");
    json_close(json, ']');
}

void devices_print(void) {
    printf("devices       cpu (built without CUDA)\n");
}
#endif
