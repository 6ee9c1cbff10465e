/* One value of an option: from text to the number that it stands for. Each refuses what it does not know with a
 * sentence that begins with the option's name. */
#ifndef CLI_OPTION_VALUES_H
#define CLI_OPTION_VALUES_H

#include <ringattn/ringattn.h>

/* Decimal digits with at most a minus before them: no blanks, no plus, nothing after. */
ra_status value_int(const char *flag_name, const char *item, int64_t min, int64_t max, int64_t *value_out);

/* A finite decimal number. */
ra_status value_real(const char *flag_name, const char *item, double *value_out);

/* Names: ra_dtype, ra_layout, ra_strategy, cli_transport, a device (CLI_DEVICE_CUDA), ra_dilated_*. */
ra_status value_dtype(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_layout(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_strategy(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_transport(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_device(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_dilated_heads(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_dilated_offset(const char *flag_name, const char *item, int64_t *value_out);
ra_status value_dilated_combine(const char *flag_name, const char *item, int64_t *value_out);

#endif
