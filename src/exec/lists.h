/* The lists of a plan: what device kernels need of all its computes, in one block of device memory, by one upload.
 *
 *     pinned   | lists of compute 0 | 1 | ... |
 *                        │ one copy
 *     device   | lists of compute 0 | 1 | ... | counters of compute 0 | 1 | ... |
 *
 * The computes are those of the forward program and then of the backward program, step by step. The block is not part
 * of the workspace: plans may share a workspace, which holds nothing between their passes, while lists stay as long as
 * the plan does. */
#ifndef RA_EXEC_LISTS_H
#define RA_EXEC_LISTS_H

#include "device/upload.h"
#include "exec/program.h"

/* Programs that are bound; a backward program of zeros has no computes. *upload_out stays all zeros where there is
 * nothing to upload, and is to be ended after the last pass, whether this succeeds or not. */
ra_status ra_lists_upload(ra_uploader *uploader, const ra_program *forward, const ra_program *backward,
                          ra_upload *upload_out);

#endif
