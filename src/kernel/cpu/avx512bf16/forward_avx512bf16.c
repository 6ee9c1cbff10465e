/* The AVX-512-BF16 kernel's forward pass for bf16. */
#include "kernel/cpu/avx512/vector_f32_avx512.h"
#include "kernel/cpu/avx512bf16/avx512bf16.h"
#include "kernel/cpu/avx512bf16/product_avx512bf16.h"

#include "kernel/cpu/body/bf16_forward_body.inc"
