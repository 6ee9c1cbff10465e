/* The AMX kernel's backward pass for bf16. */
#include "kernel/cpu/amx/amx.h"
#include "kernel/cpu/amx/product_amx.h"
#include "kernel/cpu/avx512/vector_f32_avx512.h"

#include "kernel/cpu/body/bf16_backward_body.inc"
