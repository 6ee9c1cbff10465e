/* From the text behind an option to its field of cli_options. */
#ifndef CLI_OPTION_STORE_H
#define CLI_OPTION_STORE_H

#include "options/option_flags.h"

/* value: NULL for a switch. Checks what the table allows for the command that options names. */
ra_status flag_store(const flag *f, const char *value, cli_options *options);

#endif
