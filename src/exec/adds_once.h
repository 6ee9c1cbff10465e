/* What a backward kernel adds to the rows of keys, by the tiles of a call. */
#ifndef RA_EXEC_ADDS_ONCE_H
#define RA_EXEC_ADDS_ONCE_H

#include "core/tile.h"

/* Whether a kernel that says what it overwrites adds to each row of dk and dv once in a call with these tiles
 * (kernel.h). */
int ra_adds_once(const ra_tile_list *list);

#endif
