/* Errors: the first function that decides on one describes it with ra_fail, the rest forward it with RA_TRY. */
#ifndef RA_BASE_STATUS_H
#define RA_BASE_STATUS_H

#include <ringattn/ringattn.h>

/* How often ra_fail was called on this thread: tells whether somebody who failed has also said why. */
unsigned ra_fail_count(void);

/* Shorthand for the commonest error: return ra_refuse(...). */
#define ra_refuse(...) ra_fail(RA_ERR_ARGUMENT, __VA_ARGS__)

/* What planning says where it gets no memory for its lists: return ra_no_memory(). */
ra_status ra_no_memory(void);

#endif
