/* The AVX2 kernel's backward pass for f64. */
#include "kernel/cpu/avx2/avx2.h"
#include "kernel/cpu/avx2/type_f64_avx2.h"

#include "kernel/cpu/body/backward_body.inc"
