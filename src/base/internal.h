/* What libringattn shows libringattn_cuda, and nobody else: it does not belong to the public interface.
 *
 *     libringattn_cuda  ── calls ──►  functions of libringattn that are marked RA_INTERNAL
 *     libringattn       ── calls ──►  the tables of a backend: kernel/backend.h, device/device.h, kernel/kernel.h
 *
 * The marked functions are in base/clock.h, base/pool.h, base/sized.h, core/join_rounds.h, core/span.h, core/tile.h
 * and transport/host.h, and tools/exported/ringattn_internal.txt lists them. Both directions have one version.
 * libringattn refuses a backend of another one (ra_backend_check), and libringattn_cuda asks with ra_internal_check
 * before it calls anything else of these.
 */
#ifndef RA_BASE_INTERNAL_H
#define RA_BASE_INTERNAL_H

#include <ringattn/ringattn.h>

#define RA_INTERNAL RA_API

#define RA_VERSION_NUMBER (RA_VERSION_MAJOR * 1000000 + RA_VERSION_MINOR * 1000 + RA_VERSION_PATCH)

/* The release and, in the last two digits, a number that is raised when a function marked RA_INTERNAL, a table of a
 * backend or a structure that either is given changes between two releases. */
#define RA_INTERNAL_VERSION (RA_VERSION_NUMBER * 100 + 10)

#ifdef __cplusplus
extern "C" {
#endif

/* RA_ERR_UNSUPPORTED, with a sentence, unless version, the caller's RA_INTERNAL_VERSION, is that of this library.
 * library: the caller's name. */
RA_INTERNAL ra_status ra_internal_check(const char *library, int version);

#ifdef __cplusplus
}
#endif
#endif
