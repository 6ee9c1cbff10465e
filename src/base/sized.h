/* Structures that start with their size, so that they can grow: how a caller's are read and written. */
#ifndef RA_BASE_SIZED_H
#define RA_BASE_SIZED_H

#include "base/internal.h"

/* Copies the caller's structure over *to, which has `known` bytes and holds the defaults: what a program compiled
 * against an older header does not have keeps them. Refuses NULL, a size below `least`, and one that this library does
 * not know. name: of the argument, for the error. */
ra_status ra_sized_read(const char *name, const void *given, size_t least, size_t known, void *to);

/* The other way: as much of *from, of `known` bytes, as the caller's structure says that it has. */
RA_INTERNAL ra_status ra_sized_write(const char *name, const void *from, size_t known, void *given);

#endif
