// The end of what for_avx2.h or for_avx512.h began. gcc instantiates templates at the end of the
// file, with what is set there, so that it keeps what it was told.
#if defined(__clang__)
#pragma clang attribute pop
#endif
