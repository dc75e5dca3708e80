// Which instruction sets the host's kernels are compiled for. Include before any Highway header.
//
// The baseline of x86-64 (SSE2), AVX2 and AVX-512: machines between them lose little, and each
// further set costs compile time and size.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
