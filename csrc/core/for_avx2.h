// What follows in a file is compiled for AVX2; at its end is for_all.h. It comes behind the other
// includes: what those define may be shared with files for other machines. No guard: a file includes it once.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
