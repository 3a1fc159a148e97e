#ifndef TOOLS_LAB_DEVICE_CUDART_CURRENT_DEVICE_H_
#define TOOLS_LAB_DEVICE_CUDART_CURRENT_DEVICE_H_

#include "tools/lab/device/cudart/error.h"

namespace fineserve::cudart {

// Every thread has a device (initially 0) and works in its primary context,
// which the runtime retains once per process. A context that the program made
// current through the driver takes precedence. Any thread may call these
// functions.

// Loads the driver and makes sure that a context is current.
cudaError_t EnterContext();

// Gets the ordinal of the thread's device, whether or not a context exists yet.
cudaError_t CurrentDevice(int* ordinal);

// Makes `ordinal` the thread's device and its primary context current.
cudaError_t SelectDevice(int ordinal);

// Gets the primary context of a device, and retains it at the first call.
cudaError_t PrimaryContext(int ordinal, driver::CUcontext* context);

// Returns InvalidDevice unless there is such a device.
cudaError_t CheckDevice(int ordinal);

// Destroys the primary context of the thread's device.
cudaError_t ResetDevice();

// Releases the primary contexts, at exit.
void ReleaseDevices();

}  // namespace fineserve::cudart

#endif  // TOOLS_LAB_DEVICE_CUDART_CURRENT_DEVICE_H_
