/* Files that exist and are not whole: however this process ends, short of SIGKILL, it takes them along. */
#ifndef CLI_CLEANUP_H
#define CLI_CLEANUP_H

enum { CLEANUP_FILES_MAX = 16 };

/* From here on a signal that ends the process removes the files first. Signals that are ignored stay ignored. */
void cleanup_catch_signals(void);

/* The file in that place of the list, 0 to CLEANUP_FILES_MAX - 1; NULL: none (any more). The name stays valid. */
void cleanup_set(int place, char *path);

/* Removes the files. Safe in a signal's handler and from any thread. */
void cleanup_remove(void);

/* Between the two a signal is put off, whichever thread it meets: for what must be done whole or not at all. */
void cleanup_hold_signals(void);
void cleanup_release_signals(void);

#endif
