#ifndef KERNELS_DRIVER_EXPORT_H_
#define KERNELS_DRIVER_EXPORT_H_

// Marks the definition of a C function that one of our shared libraries exports
// although it is compiled with hidden visibility.
#define FINESERVE_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // KERNELS_DRIVER_EXPORT_H_
