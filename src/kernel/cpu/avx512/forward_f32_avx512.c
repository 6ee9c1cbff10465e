/* The AVX-512 kernel's forward pass for f32, bf16 and f16. */
#include "kernel/cpu/avx512/avx512.h"
#include "kernel/cpu/avx512/type_f32_avx512.h"

#include "kernel/cpu/body/forward_body.inc"
