/* The portable kernel's backward pass for f64. */
#include "kernel/cpu/portable/portable.h"
#include "kernel/cpu/portable/type_f64.h"

#include "kernel/cpu/body/backward_body.inc"
