// The kernel's host twin, compiled from the kernel's own source.

#include "kernels/zero.h"

#include "kernels/zero.cu"
