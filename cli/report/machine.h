/* The machine and the libraries found on it, as text, for ringattn info. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stddef.h>

enum { MACHINE_TEXT_BYTES = 256 };

/* "Linux 6.1.0 x86_64, glibc 2.36" */
void machine_system(char text_out[MACHINE_TEXT_BYTES]);

/* The processor's name as the system gives it, "" where it gives none; and how many cores this process may use. */
void machine_cpu_name(char text_out[MACHINE_TEXT_BYTES]);
int machine_cores(void);

/* The version of each library as found at run time. 1: text_out is the version; 0: there is none, and text_out says
 * why. */
int machine_mpi_version(char text_out[MACHINE_TEXT_BYTES]);
int machine_ucx_version(char text_out[MACHINE_TEXT_BYTES]);
int machine_nccl_version(char text_out[MACHINE_TEXT_BYTES]);
int machine_cuda_driver_version(char text_out[MACHINE_TEXT_BYTES]); /* the newest CUDA that the driver runs */

#endif
