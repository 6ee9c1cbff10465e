#include "mpi_transport.h"

ra_status ra_mpi_check_usable(void) {
    int initialised = 0, finalised = 0, level = 0, main_thread = 0;
    MPI_Initialized(&initialised);
    if (!initialised) {
        return ra_fail(RA_ERR_ARGUMENT, "MPI is not initialised: call MPI_Init or MPI_Init_thread first");
    }
    MPI_Finalized(&finalised);
    if (finalised) {
        return ra_fail(RA_ERR_ARGUMENT, "MPI is finalised already: use ringattn over MPI before MPI_Finalize");
    }
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_MULTIPLE) return RA_OK;
    MPI_Is_thread_main(&main_thread);
    if (main_thread) return RA_OK;
    return ra_fail(RA_ERR_ARGUMENT,
                   "MPI was initialised without MPI_THREAD_MULTIPLE and this is not the thread that did "
                   "it: call ringattn from that thread, or ask MPI_Init_thread for "
                   "MPI_THREAD_MULTIPLE");
}

ra_status ra_mpi_check(int error, const char *call) {
    if (error == MPI_SUCCESS) return RA_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    for (char *c = text; *c; c++) {
        if (*c == '\n') *c = ' '; /* MPICH's texts have several lines */
    }
    return ra_fail(RA_ERR_TRANSPORT, "%s failed: %s", call, text);
}
