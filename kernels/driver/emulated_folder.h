#ifndef KERNELS_DRIVER_EMULATED_FOLDER_H_
#define KERNELS_DRIVER_EMULATED_FOLDER_H_

#include <string>

namespace fineserve::driver {

// Returns the folder of the emulated driver that came with this program,
// relative to the program's own folder: ../lib/emucuda (build tree, bundle),
// else ../<private libdir>/emucuda (package fineserve-dev). The folder may not
// exist. Any thread.
std::string EmulatedFolder();

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_EMULATED_FOLDER_H_
