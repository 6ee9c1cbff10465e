#include "base/internal.h"

#include "base/status.h"

ra_status ra_internal_check(const char *library, int version) {
    if (version == RA_INTERNAL_VERSION) return RA_OK;
    return ra_fail(
        RA_ERR_UNSUPPORTED,
        "%s was built for the internal version %d of libringattn, but the libringattn that is loaded has %d: "
        "install both from one build",
        library, version, RA_INTERNAL_VERSION);
}
