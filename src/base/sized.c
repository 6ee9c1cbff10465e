#include "base/sized.h"

#include "base/status.h"

#include <string.h>

static ra_status check(const char *name, const void *given, size_t least, size_t known, size_t *size_out) {
    if (!given) return ra_refuse("%s is NULL", name);
    memcpy(size_out, given, sizeof *size_out);
    if (*size_out < least || *size_out > known)
        return ra_refuse(
            "%s: struct_size is %zu, this library takes %zu to %zu: initialise the structure with its RA_..._INIT or "
            "ra_..._init, and compile against the header of this library",
            name, *size_out, least, known);
    return RA_OK;
}

ra_status ra_sized_read(const char *name, const void *given, size_t least, size_t known, void *to) {
    size_t size = 0;
    RA_TRY(check(name, given, least, known, &size));
    memcpy(to, given, size);
    memcpy(to, &known, sizeof known);
    return RA_OK;
}

ra_status ra_sized_write(const char *name, const void *from, size_t known, void *given) {
    size_t size = 0;
    RA_TRY(check(name, given, sizeof size, known, &size));
    memcpy(given, from, size);
    memcpy(given, &size, sizeof size);
    return RA_OK;
}
