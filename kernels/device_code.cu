// All kernels, compiled into one image.

#include "kernels/fingerprint.cu"
