/* The AVX-512 kernel's backward pass for f32, bf16 and f16. */
#include "kernel/cpu/avx512/avx512.h"
#include "kernel/cpu/avx512/type_f32_avx512.h"

#include "kernel/cpu/body/backward_body.inc"
