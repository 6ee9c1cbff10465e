/* What goes over a connection before rank 0 and another rank trust each other: both show that they know the job's key,
 * and neither sends it. Nothing that somebody overheard earlier serves again, since both draw a random number for each
 * connection.
 *
 *     rank 0    challenge: a random number
 *     rank r    claim:     its rank, how many there are, a random number, HMAC of all these with the key
 *     rank 0    verdict:   once all have come; yes, or why not; HMAC of it and both numbers with the key
 *
 * A rank whose claim is wrong is disconnected without a word.
 */
#ifndef RA_TRANSPORT_RENDEZVOUS_HANDSHAKE_H
#define RA_TRANSPORT_RENDEZVOUS_HANDSHAKE_H

#include "base/sha256.h"

#include <ringattn/ringattn.h>

typedef struct ra_challenge {
    char magic[8];
    unsigned char nonce[RA_SHA256_BYTES];
} ra_challenge;

typedef struct ra_claim {
    char magic[8];
    int32_t rank, ranks;
    unsigned char nonce[RA_SHA256_BYTES];
    unsigned char proof[RA_SHA256_BYTES];
} ra_claim;

typedef struct ra_verdict {
    char magic[8];
    int32_t status; /* an ra_status */
    char why[252];
    unsigned char proof[RA_SHA256_BYTES];
} ra_verdict;

ra_status ra_challenge_make(ra_challenge *challenge_out);
int ra_challenge_valid(const ra_challenge *challenge);

ra_status ra_claim_make(const char *key, const ra_challenge *challenge, int rank, int ranks, ra_claim *claim_out);
int ra_claim_valid(const char *key, const ra_challenge *challenge, const ra_claim *claim);

void ra_verdict_make(const char *key, const ra_challenge *challenge, const ra_claim *claim, ra_status status,
                     const char *why, ra_verdict *verdict_out);
int ra_verdict_valid(const char *key, const ra_challenge *challenge, const ra_claim *claim, const ra_verdict *verdict);

#endif
