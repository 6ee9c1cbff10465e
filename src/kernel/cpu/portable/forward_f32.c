/* The portable kernel's forward pass for f32, bf16 and f16. */
#include "kernel/cpu/portable/portable.h"
#include "kernel/cpu/portable/type_f32.h"

#include "kernel/cpu/body/forward_body.inc"
