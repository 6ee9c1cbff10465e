/* Keys and values that are read where the callers of a pass have them (sharing.h): lending them, and finding others'.
 */
#ifndef RA_EXEC_LENT_KEYS_H
#define RA_EXEC_LENT_KEYS_H

#include "exec/exec.h"

/* When a run begins: lends the rank's own keys and values, where others' kernels can read them as well as packed ones.
 * A program that lends nothing is left alone. */
void ra_lend_keys(const ra_pass_run *run);

/* Whether the run that has begun lends them, so that nothing of them is packed. */
int ra_lends_keys(const ra_program *program);

/* The part with k and v where they are in this run. */
ra_kv_rows ra_lent_part_rows(const ra_pass_run *run, const ra_lent_part *lent, ra_kv_rows part);

#endif
