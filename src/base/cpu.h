/* What this machine's processor can do: what kernels are chosen by. */
#ifndef RA_BASE_CPU_H
#define RA_BASE_CPU_H

/* Whether the processor and the operating system support a feature, by its name in ra_cpu_features. */
int ra_cpu_has(const char *feature);

/* Asks the system, once, to let this process use the tile registers of AMX; returns whether it does. */
int ra_cpu_allow_tiles(void);

#endif
