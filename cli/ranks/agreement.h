/* How ranks find out together whether all is well: the inside of crew_agree, for those that have lost each other too.
 */
#ifndef CLI_AGREEMENT_H
#define CLI_AGREEMENT_H

#include <ringattn/ringattn.h>

enum { AGREEMENT_BYTES = 1024 /* of a sentence */ };

/* Whether a status says that the ranks cannot meet again. */
int agreement_lost(ra_status status);

/* Whether the last agreement of this thread's rank was that a rank has failed. All ranks know it then, and the one that
 * failed has not stayed for another. */
int agreement_failed(void);

/* As crew_agree, whatever `mine` is: when the ranks cannot meet any more, a status for which agreement_lost holds.
 * sentence [AGREEMENT_BYTES]: why mine is what it is. */
ra_status agreement_reach(ra_comm *comm, ra_status mine, const char *sentence, double timeout_seconds);

#endif
