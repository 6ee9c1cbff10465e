/* What this machine's processor can do: what kernels are chosen by. */
#ifndef RA_BASE_CPU_H
#define RA_BASE_CPU_H

/* Whether the processor and the operating system support a feature, by its name in ra_cpu_features. */
int ra_cpu_has(const char *feature);

/* Whether arithmetic with numbers too small to be normal is many times slower than with others. */
int ra_cpu_is_slow_on_subnormals(void);

/* Asks the system, once, to let this process use the tile registers of AMX; returns whether it does. */
int ra_cpu_allow_tiles(void);

#endif
