/* The AVX-512 kernel's backward pass for f64. */
#include "kernel/cpu/avx512/avx512.h"
#include "kernel/cpu/avx512/type_f64_avx512.h"

#include "kernel/cpu/body/backward_body.inc"
