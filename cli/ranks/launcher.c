#include "ranks/launcher.h"

#include <stdlib.h>
#include <string.h>

static int read_size(const char *name) {
    const char *text = getenv(name);
    long size = text ? strtol(text, NULL, 10) : 0;
    return size > 0 && size < 1L << 30 ? (int)size : 0;
}

int launcher_processes(void) {
    /* Open MPI; MPICH, Intel MPI and Slurm's PMI; Slurm with PMIx, which gives a rank but no size. */
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i)
        if (read_size(sizes[i])) return read_size(sizes[i]);
    return 1;
}

int launcher_torchrun_processes(void) {
    int size = getenv("TORCHELASTIC_RUN_ID") ? read_size("WORLD_SIZE") : 0;
    return size ? size : 1;
}

int launcher_ignores_exit_codes(void) {
    const char *text = getenv("OMPI_MCA_orte_abort_on_non_zero_status");
    return text && (strcmp(text, "0") == 0 || strcmp(text, "false") == 0 || strcmp(text, "no") == 0);
}
