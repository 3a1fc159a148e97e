// All kernels, for one image.

#include "kernels/fingerprint.cu"
#include "kernels/zero.cu"
