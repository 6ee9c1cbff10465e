#include "transport/rendezvous/handshake.h"

#include "base/entropy.h"
#include "base/status.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char CHALLENGE[8] = "ra-who1", CLAIM[8] = "ra-its1", VERDICT[8] = "ra-say1";

ra_status ra_challenge_make(ra_challenge *challenge_out) {
    memcpy(challenge_out->magic, CHALLENGE, sizeof CHALLENGE);
    return ra_random_bytes(challenge_out->nonce, sizeof challenge_out->nonce);
}

int ra_challenge_valid(const ra_challenge *challenge) {
    return memcmp(challenge->magic, CHALLENGE, sizeof CHALLENGE) == 0;
}

static void prove_claim(const char *key, const ra_challenge *challenge, const ra_claim *claim,
                        unsigned char *proof_out) {
    unsigned char text[sizeof *challenge + offsetof(ra_claim, proof)];
    memcpy(text, challenge, sizeof *challenge);
    memcpy(text + sizeof *challenge, claim, offsetof(ra_claim, proof));
    ra_hmac(key, strlen(key), text, sizeof text, proof_out);
}

ra_status ra_claim_make(const char *key, const ra_challenge *challenge, int rank, int ranks, ra_claim *claim_out) {
    memset(claim_out, 0, sizeof *claim_out);
    memcpy(claim_out->magic, CLAIM, sizeof CLAIM);
    claim_out->rank = rank;
    claim_out->ranks = ranks;
    RA_TRY(ra_random_bytes(claim_out->nonce, sizeof claim_out->nonce));
    prove_claim(key, challenge, claim_out, claim_out->proof);
    return RA_OK;
}

int ra_claim_valid(const char *key, const ra_challenge *challenge, const ra_claim *claim) {
    unsigned char proof[RA_SHA256_BYTES];
    prove_claim(key, challenge, claim, proof);
    return memcmp(claim->magic, CLAIM, sizeof CLAIM) == 0 && ra_digest_equal(proof, claim->proof);
}

static void prove_verdict(const char *key, const ra_challenge *challenge, const ra_claim *claim,
                          const ra_verdict *verdict, unsigned char *proof_out) {
    unsigned char text[sizeof *challenge + sizeof *claim + offsetof(ra_verdict, proof)];
    memcpy(text, challenge, sizeof *challenge);
    memcpy(text + sizeof *challenge, claim, sizeof *claim);
    memcpy(text + sizeof *challenge + sizeof *claim, verdict, offsetof(ra_verdict, proof));
    ra_hmac(key, strlen(key), text, sizeof text, proof_out);
}

void ra_verdict_make(const char *key, const ra_challenge *challenge, const ra_claim *claim, ra_status status,
                     const char *why, ra_verdict *verdict_out) {
    memset(verdict_out, 0, sizeof *verdict_out);
    memcpy(verdict_out->magic, VERDICT, sizeof VERDICT);
    verdict_out->status = status;
    snprintf(verdict_out->why, sizeof verdict_out->why, "%s", why);
    prove_verdict(key, challenge, claim, verdict_out, verdict_out->proof);
}

int ra_verdict_valid(const char *key, const ra_challenge *challenge, const ra_claim *claim, const ra_verdict *verdict) {
    unsigned char proof[RA_SHA256_BYTES];
    prove_verdict(key, challenge, claim, verdict, proof);
    return memcmp(verdict->magic, VERDICT, sizeof VERDICT) == 0 && ra_digest_equal(proof, verdict->proof);
}
