#ifndef KERNELS_DRIVER_EXPORT_H_
#define KERNELS_DRIVER_EXPORT_H_

// Marks the definition of a C function that a shared library of ours exports
// although it is compiled with hidden visibility.
#define FINESERVE_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // KERNELS_DRIVER_EXPORT_H_
