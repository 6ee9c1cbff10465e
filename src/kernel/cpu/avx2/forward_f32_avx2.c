/* The AVX2 kernel's forward pass for f32, bf16 and f16. */
#include "kernel/cpu/avx2/avx2.h"
#include "kernel/cpu/avx2/type_f32_avx2.h"

#include "kernel/cpu/body/forward_body.inc"
