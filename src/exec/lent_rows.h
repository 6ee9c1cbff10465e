/* Rows that are used where the callers of a pass have them (sharing.h): lending them, and finding others'. */
#ifndef RA_EXEC_LENT_ROWS_H
#define RA_EXEC_LENT_ROWS_H

#include "exec/exec.h"

/* When a run begins: lends the rank's own keys and values, where others' kernels can read them as well as packed ones,
 * and, for where keys stay, its queries and results. A program that lends nothing is left alone. */
void ra_lend_rows(const ra_pass_run *run);

/* Whether the run that has begun lends them, so that nothing of them is packed. */
int ra_lends_keys(const ra_program *program);

/* The part with k and v where they are in this run. */
ra_kv_rows ra_lent_part_rows(const ra_pass_run *run, const ra_lent_part *lent, ra_kv_rows part);

/* For the leader's call, where keys stay: the queries of all ranks in this run, and their keys, backward with dk and dv
 * as the call takes them, for as long as it takes. */
const ra_query_rows *ra_lent_queries(const ra_pass_run *run);
const ra_kv_rows *ra_lent_keys(const ra_pass_run *run);

/* Where keys stay, when the run has closed: whether the leader's call has written outputs, o and lse, or dk and dv. */
int ra_lent_rows_are_finished(const ra_program *program);

/* And whether it has written dq. */
int ra_lent_queries_are_finished(const ra_program *program);

#endif
