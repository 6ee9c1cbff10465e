#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[1024];
static _Thread_local unsigned fail_count;

const char *ra_status_text(ra_status status) {
    switch (status) {
#define RA_STATUS_CASE(name, value, text)                                                                              \
    case name:                                                                                                         \
        return text;
        RA_STATUS_LIST(RA_STATUS_CASE)
#undef RA_STATUS_CASE
    }
    return "an unknown status";
}

const char *ra_last_error(void) {
    return last_error;
}

ra_status ra_fail(ra_status status, const char *format, ...) {
    /* The arguments may point into last_error itself (an error that quotes an earlier one). */
    char text[sizeof last_error];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(last_error, sizeof last_error, "%s", text);
    fail_count++;
    return status;
}

unsigned ra_fail_count(void) {
    return fail_count;
}

ra_status ra_no_memory(void) {
    return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
}
