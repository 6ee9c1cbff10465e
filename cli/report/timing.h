/* Clocks. */
#ifndef CLI_TIMING_H
#define CLI_TIMING_H

/* Seconds on a clock that only goes forward, and seconds that all threads of this process have computed. */
double timing_wall(void);
double timing_cpu(void);

#endif
