#ifndef KERNELS_DRIVER_EXPORT_H_
#define KERNELS_DRIVER_EXPORT_H_

// In front of a definition: a C function that a shared library of ours
// exports, though it is compiled with hidden visibility.
#define FINESERVE_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // KERNELS_DRIVER_EXPORT_H_
