/* An outside program on libringattn_cuda: it needs no CUDA header, and without a GPU it is told so. */
#include <ringattn/cuda.h>
#include <stdio.h>

int main(void) {
    const ra_backend *backend = NULL;
    ra_status status = ra_cuda_backend(0, &backend);
    if (ra_cuda_devices() == 0) {
        printf("no GPU, skipped: %s\n", ra_last_error());
        return status == RA_ERR_UNSUPPORTED ? 0 : 1;
    }
    void *memory = NULL;
    if (status == RA_OK) status = ra_backend_allocate(backend, 1 << 20, &memory);
    ra_backend_release(backend, memory);
    printf("%s: %s\n", ra_backend_name(backend), status == RA_OK ? "ok" : ra_last_error());
    return status != RA_OK;
}
