// All kernels, compiled into one image.

#include "kernels/fingerprint.cu"
#include "kernels/zero.cu"
