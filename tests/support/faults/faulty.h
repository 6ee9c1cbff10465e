/* A transport that misbehaves on purpose: in-process ranks, of which one does something wrong in one of its groups. It
 * also counts what really goes over the wire. */
#ifndef TESTS_SUPPORT_FAULTY_H
#define TESTS_SUPPORT_FAULTY_H

#include <ringattn/transport.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_DELAY,   /* every rank sleeps at random before it posts and polls */
    FAULT_REORDER, /* every rank posts the messages of a group in another order, but for those of one pair */
    FAULT_DROP,    /* the rank loses one message it should send */
    FAULT_KILL,    /* the rank stops taking part and tells nobody */
    FAULT_STALL,   /* the rank sleeps for `seconds` */
    FAULT_LENGTH,  /* the rank sends a message one byte short */
    FAULT_ERROR    /* the rank's transport reports an error */
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int rank;
    int group; /* the number of the rank's post it happens in, from 0 */
    double seconds;
    uint64_t seed;
    int without_signs; /* the transport has no inquire: waits end by the clock */
} fault;

/* What a rank's transport was asked to send. */
typedef struct wire_count {
    int64_t bytes, messages, groups;
} wire_count;

/* comms_out [ranks]; counts [ranks] may be NULL and must outlive the comms. */
ra_status fault_create(int ranks, fault f, wire_count *counts, ra_comm **comms_out);

#endif
