/* Random numbers that nobody can guess, for keys. */
#ifndef RA_BASE_ENTROPY_H
#define RA_BASE_ENTROPY_H

#include <ringattn/ringattn.h>

ra_status ra_random_bytes(void *bytes_out, size_t count);

#endif
