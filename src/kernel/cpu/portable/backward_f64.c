/* The portable kernel's backward pass for f64. */
#include "kernel/cpu/portable/type_f64.h"

#include "kernel/cpu/portable/backward_body.inc"
