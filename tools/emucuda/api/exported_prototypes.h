#ifndef TOOLS_EMUCUDA_API_EXPORTED_PROTOTYPES_H_
#define TOOLS_EMUCUDA_API_EXPORTED_PROTOTYPES_H_

// The driver's prototypes, for the files that define them. These functions are
// exported; everything else in the library is hidden (-fvisibility=hidden).

#pragma GCC visibility push(default)
#include "kernels/driver/prototypes.h"
#include "tools/emucuda/emucuda.h"
#pragma GCC visibility pop

#endif  // TOOLS_EMUCUDA_API_EXPORTED_PROTOTYPES_H_
