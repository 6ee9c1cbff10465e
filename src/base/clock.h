/* Seconds on a clock that only goes forward: what deadlines are measured by. */
#ifndef RA_BASE_CLOCK_H
#define RA_BASE_CLOCK_H

#include "base/internal.h"

RA_INTERNAL double ra_clock(void);

#endif
