#include <ringattn/ringattn.h>

#define STRING(x) #x
#define EXPAND(x) STRING(x)

const char *ra_version(void) {
    return EXPAND(RA_VERSION_MAJOR) "." EXPAND(RA_VERSION_MINOR) "." EXPAND(RA_VERSION_PATCH);
}
