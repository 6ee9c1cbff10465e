/* Ranks that are called for different things at the same time, over any comm: the last rank does something else. */
#ifndef TESTS_SUPPORT_CROSSED_H
#define TESTS_SUPPORT_CROSSED_H

#include <ringattn/ringattn.h>

typedef enum crossing {
    CROSSED_NOTHING,        /* everyone runs the same: must succeed */
    CROSSED_FORWARD_PLANS,  /* the forward passes of two plans that differ in their scale only */
    CROSSED_BACKWARD_PLANS, /* their backward passes */
    CROSSED_PASSES,         /* one plan's forward pass and its backward pass */
    CROSSED_STATES,         /* the same, where the backward pass begins with the forward pass's messages */
    CROSSED_EXCHANGE,       /* a pass and an exchange */
    CROSSED_COUNT
} crossing;

/* Collective, at least two ranks: makes the plans, then the calls that do not belong together. Returns the status of
 * the last; RA_ERR_INTERNAL when that failed and its outputs look whole. */
ra_status crossed_run(ra_comm *comm, crossing kind, double timeout_seconds);

#endif
