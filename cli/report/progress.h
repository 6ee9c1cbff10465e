/* A line on stderr that says what is being done and for how long, when stderr is a terminal and the work takes more
 * than a second. One at a time per process. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

void progress_begin(const char *phase); /* a text that stays valid */
void progress_phase(const char *phase);
void progress_end(void); /* wipes the line */

#endif
