#include "options/option_values.h"

#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

ra_status value_int(const char *flag_name, const char *item, int64_t min, int64_t max, int64_t *value_out) {
    const char *digits = item[0] == '-' ? item + 1 : item;
    if (digits[0] < '0' || digits[0] > '9') CLI_RETURN_REFUSAL("%s: '%s' is not a whole number", flag_name, item);
    char *end;
    errno = 0;
    long long value = strtoll(item, &end, 10);
    if (*end != '\0') CLI_RETURN_REFUSAL("%s: '%s' is not a whole number", flag_name, item);
    if (errno == ERANGE || value < min || value > max)
        CLI_RETURN_REFUSAL("%s: %s is out of range; give a number from %lld to %lld", flag_name, item, (long long)min,
                           (long long)max);
    *value_out = value;
    return RA_OK;
}

ra_status value_real(const char *flag_name, const char *item, double *value_out) {
    if (strspn(item, "+-.0123456789eE") != strlen(item) || item[0] == '\0')
        CLI_RETURN_REFUSAL("%s: '%s' is not a number", flag_name, item);
    char *end;
    double value = strtod(item, &end);
    if (*end != '\0') CLI_RETURN_REFUSAL("%s: '%s' is not a number", flag_name, item);
    if (!isfinite(value)) CLI_RETURN_REFUSAL("%s: %s is too large", flag_name, item);
    *value_out = value;
    return RA_OK;
}

/* Puts the flag's name before the library's sentence, which lists the choices. */
static ra_status name_flag(const char *flag_name, ra_status status) {
    return status == RA_OK ? RA_OK : ra_fail(status, "%s: %s", flag_name, ra_last_error());
}

ra_status value_dtype(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dtype dtype = RA_F32;
    CLI_RETURN_ON_ERROR(name_flag(flag_name, ra_dtype_parse(item, &dtype)));
    *value_out = dtype;
    return RA_OK;
}

ra_status value_layout(const char *flag_name, const char *item, int64_t *value_out) {
    ra_layout layout = RA_LAYOUT_AUTO;
    CLI_RETURN_ON_ERROR(name_flag(flag_name, ra_layout_parse(item, &layout)));
    *value_out = layout;
    return RA_OK;
}

ra_status value_strategy(const char *flag_name, const char *item, int64_t *value_out) {
    ra_strategy strategy = RA_STRATEGY_AUTO;
    CLI_RETURN_ON_ERROR(name_flag(flag_name, ra_strategy_parse(item, &strategy)));
    *value_out = strategy;
    return RA_OK;
}

ra_status value_transport(const char *flag_name, const char *item, int64_t *value_out) {
    static const char *const names[] = {"thread", "self", "mpi", "nccl", "ucx"};
    for (int i = 0; i < 5; ++i) {
        *value_out = i;
        if (strcmp(item, names[i]) == 0) return RA_OK;
    }
    CLI_RETURN_REFUSAL("%s: there is no transport '%s'; choose one of thread, self, mpi, nccl, ucx", flag_name, item);
}

ra_status value_device(const char *flag_name, const char *item, int64_t *value_out) {
    *value_out = CLI_DEVICE_CPU;
    if (strcmp(item, "cpu") == 0) return RA_OK;
    *value_out = CLI_DEVICE_CUDA;
    if (strcmp(item, "cuda") == 0) return RA_OK;
    if (strncmp(item, "cuda:", 5) != 0)
        CLI_RETURN_REFUSAL("%s: there is no device '%s'; choose one of cpu, cuda, cuda:N", flag_name, item);
    CLI_RETURN_ON_ERROR(value_int(flag_name, item + 5, 0, 1023, value_out));
    *value_out += CLI_DEVICE_CUDA + 1;
    return RA_OK;
}

ra_status value_dilated_heads(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dilated_heads heads = RA_DILATED_ALL;
    CLI_RETURN_ON_ERROR(name_flag(flag_name, ra_dilated_heads_parse(item, &heads)));
    *value_out = heads;
    return RA_OK;
}

ra_status value_dilated_offset(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dilated_offset offset = RA_DILATED_HEAD;
    CLI_RETURN_ON_ERROR(name_flag(flag_name, ra_dilated_offset_parse(item, &offset)));
    *value_out = offset;
    return RA_OK;
}

ra_status value_dilated_combine(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dilated_combine combine = RA_DILATED_LSE;
    CLI_RETURN_ON_ERROR(name_flag(flag_name, ra_dilated_combine_parse(item, &combine)));
    *value_out = combine;
    return RA_OK;
}
