/* A CPU kernel as a device kernel: every call becomes a job on its stream. */
#ifndef TESTS_SUPPORT_QUEUED_KERNEL_H
#define TESTS_SUPPORT_QUEUED_KERNEL_H

#include "kernel/kernel.h"

/* One kernel, "queued". NULL past the end. */
const ra_kernel *queued_kernel_at(int index);

#endif
