/* What the options say together: those that need one another, and those that are missing. */
#ifndef CLI_OPTION_CHECKS_H
#define CLI_OPTION_CHECKS_H

#include "options/options.h"

ra_status options_check(const cli_options *options);

#endif
