// Releases the runtime's resources when the process ends. NVIDIA's shared
// runtime, too, does this in a static destructor, which runs after the
// destructors of a preloaded library.

#include "tools/lab/device/cudart/current_device.h"
#include "tools/lab/device/cudart/registered_code.h"

namespace fineserve::cudart {
namespace {

struct RuntimeUnload {
  ~RuntimeUnload() {
    UnloadBinaries();
    ReleaseDevices();
  }
};
const RuntimeUnload at_exit;

}  // namespace
}  // namespace fineserve::cudart
