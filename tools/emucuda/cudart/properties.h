#ifndef TOOLS_EMUCUDA_CUDART_PROPERTIES_H_
#define TOOLS_EMUCUDA_CUDART_PROPERTIES_H_

#include "tools/emucuda/cudart/error.h"

namespace fineserve::cudart {

// Fills `prop` from the driver's attributes of the device; texture and surface
// limits stay 0. The driver must be loaded. Returns InvalidDevice if there is
// no such device.
cudaError_t ReadProperties(int device, cudaDeviceProp* prop);

}  // namespace fineserve::cudart

#endif  // TOOLS_EMUCUDA_CUDART_PROPERTIES_H_
