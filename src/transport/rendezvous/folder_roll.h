/* Who has come to a folder: rank 0 reads the cards that the others put there, and answers all with one list of seats.
 *
 *     NAME.join.RANK.NONCE   a rank's card, under a random number of its own; put there again if it is cleared away
 *     NAME.seats             rank 0's answer: the job's key and whose numbers have which seat; or why there is no job
 *     NAME.conflict          another rank 0 came while one was there
 *
 * NAME is "ringattn-job", or made of the job's key (RINGATTN_JOB_KEY), so that jobs with different keys see nothing of
 * each other. A card of a process that died is cleared away by rank 0 before it reads any; those of the living come
 * back. An answer that does not have one's own number is somebody else's, or an old one.
 */
#ifndef RA_TRANSPORT_RENDEZVOUS_FOLDER_ROLL_H
#define RA_TRANSPORT_RENDEZVOUS_FOLDER_ROLL_H

#include "transport/rendezvous/folder.h"
#include "transport/rendezvous/meeting.h"

enum { RA_NONCE_BYTES = 16, RA_PREFIX = 64 };

typedef struct ra_roll {
    const ra_folder *folder;
    int rank, ranks;
    double timeout_seconds;
    double settle_seconds;  /* that rank 0 looks out for processes of another job after all of its own have come */
    char prefix[RA_PREFIX]; /* NAME */
    unsigned char key[RA_NONCE_BYTES]; /* of the job, once everyone has a seat */
} ra_roll;

/* Rank 0: draws the key, waits for a card of every other rank and gives seats. What is wrong is told to all who came.
 */
ra_status ra_roll_call(ra_roll *roll);

/* The other ranks: leaves a card and waits for a seat. */
ra_status ra_roll_answer(ra_roll *roll);

/* Removes all files of NAME but its lock: those of earlier jobs; with all_left, when nobody can be writing any more,
 * those of this job and half-written ones too. */
ra_status ra_roll_clear(const ra_roll *roll, int all_left);

#endif
