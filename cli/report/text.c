#include "report/text.h"

#include <stdio.h>

static const char *scaled(double value, double base, char *buffer) {
    static const char units[] = " KMGTPE";
    int unit = 0;
    while (value >= base - 0.5 && unit < 6) {
        value /= base;
        ++unit;
    }
    if (unit == 0)
        snprintf(buffer, TEXT_BYTES, "%.0f", value);
    else
        snprintf(buffer, TEXT_BYTES, value < 99.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
    return buffer;
}

const char *text_bytes(int64_t bytes, char buffer[TEXT_BYTES]) {
    return scaled((double)bytes, 1024, buffer);
}

const char *text_count(int64_t count, char buffer[TEXT_BYTES]) {
    return scaled((double)count, 1000, buffer);
}
