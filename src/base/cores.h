/* How many cores this process may use. */
#ifndef RA_BASE_CORES_H
#define RA_BASE_CORES_H

/* Those its affinity allows, and no more than OMP_NUM_THREADS says; at least 1. */
int ra_core_count(void);

#endif
