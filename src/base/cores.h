/* How many cores a rank may use. */
#ifndef RA_BASE_CORES_H
#define RA_BASE_CORES_H

/* The cores that this process may use (its affinity, OMP_NUM_THREADS) shared by process_ranks of it, but no more than
 * the machine's shared by all machine_ranks on it, for processes that are not bound to cores of their own. At least 1.
 */
int ra_core_share(int process_ranks, int machine_ranks);

#endif
