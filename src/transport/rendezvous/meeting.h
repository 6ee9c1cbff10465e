/* A rendezvous: what both kinds of it share. A kind is its functions; `self` is its own. */
#ifndef RA_TRANSPORT_RENDEZVOUS_MEETING_H
#define RA_TRANSPORT_RENDEZVOUS_MEETING_H

#include <ringattn/rendezvous.h>

struct ra_rendezvous {
    int rank, ranks;
    double timeout_seconds; /* of every wait */
    int failed;             /* over: refuses further use */
    void *self;
    ra_status (*allgather)(ra_rendezvous *meeting, const void *mine, size_t bytes, void *all_out);
    void (*destroy)(ra_rendezvous *meeting); /* frees self */
};

/* Checks what every kind is given. */
ra_status ra_meeting_make(int rank, int ranks, double timeout_seconds, ra_rendezvous **meeting_out);

/* The 32 hexadecimal digits of 16 bytes; text_out [33]. */
void ra_meeting_hex(const unsigned char *bytes, char *text_out);

/* A nap between two looks, longer the longer it has been waited. */
void ra_meeting_nap(double waited);

#endif
