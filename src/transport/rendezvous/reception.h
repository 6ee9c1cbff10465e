/* Rank 0 at its port, until every rank has come: lets in those who know the key, and is not held up by those who do
 * not, whatever they send or do not send. */
#ifndef RA_TRANSPORT_RENDEZVOUS_RECEPTION_H
#define RA_TRANSPORT_RENDEZVOUS_RECEPTION_H

#include <ringattn/ringattn.h>

/* sockets_out [ranks]: of every other rank, -1 for rank 0; only on success. On failure those who came are told why. */
ra_status ra_reception(int listener, const char *key, int ranks, double timeout_seconds, int *sockets_out);

#endif
