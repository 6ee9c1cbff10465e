/* The AVX-512 kernel's forward pass for f64. */
#include "kernel/cpu/avx512/avx512.h"
#include "kernel/cpu/avx512/type_f64_avx512.h"

#include "kernel/cpu/body/forward_body.inc"
