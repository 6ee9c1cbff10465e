/* A deadline for calls that have none, such as MPI_Finalize, which waits for the dead: a thread that ends the process
 * when they have not come back in time. One at a time per process. */
#ifndef CLI_WATCHDOG_H
#define CLI_WATCHDOG_H

/* From here on the process has that many seconds until watchdog_end: then it says the sentence, a text that stays
 * valid, removes files that are not whole, and ends with exit code 1. last_try: called before that on the watchdog's
 * thread, and given a second; NULL: nothing. */
void watchdog_begin(double seconds, const char *sentence, void (*last_try)(void));
void watchdog_end(void);

#endif
