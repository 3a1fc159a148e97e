// What the runtime gives back when the process ends. NVIDIA's shared runtime
// does it here too, which is after the destructors of a preloaded library.

#include "tools/emucuda/cudart/current_device.h"
#include "tools/emucuda/cudart/registered_code.h"

namespace fineserve::cudart {
namespace {

struct Unload {
  ~Unload() {
    UnloadBinaries();
    ReleaseDevices();
  }
};
const Unload at_exit;

}  // namespace
}  // namespace fineserve::cudart
