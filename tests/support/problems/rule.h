/* What each output of a problem must be where inputs are not finite, or huge: the rule of ringattn.h, element by
 * element, from the definition in doubles over the pairs that see each other alone. */
#ifndef TESTS_SUPPORT_RULE_H
#define TESTS_SUPPORT_RULE_H

#include "support/problems/sweep.h"

/* Sets data->want and data->slack from data's inputs. Returns 0 for want of memory. */
int rule_apply(sweep_data *data);

#endif
