#ifndef TOOLS_LAB_DEVICE_API_EXPORTED_PROTOTYPES_H_
#define TOOLS_LAB_DEVICE_API_EXPORTED_PROTOTYPES_H_

// The driver's prototypes, for the files that define the functions. These
// functions are exported; everything else in the library is hidden
// (-fvisibility=hidden).

#pragma GCC visibility push(default)
#include "kernels/driver/prototypes.h"
#include "tools/lab/device/emucuda.h"
#pragma GCC visibility pop

#endif  // TOOLS_LAB_DEVICE_API_EXPORTED_PROTOTYPES_H_
