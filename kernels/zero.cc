// The host's twin of the kernel, from the kernel's own source.

#include "kernels/zero.h"

#include "kernels/zero.cu"
