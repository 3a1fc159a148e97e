#ifndef KERNELS_DRIVER_EMULATED_FOLDER_H_
#define KERNELS_DRIVER_EMULATED_FOLDER_H_

#include <string>

namespace fineserve::driver {

// The folder of the emulated driver that came with this program, relative to
// the program's own: ../lib/emucuda (build tree, bundle), else
// ../<private libdir>/emucuda (package fineserve-dev). Whether it exists or
// not. Any thread.
std::string EmulatedFolder();

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_EMULATED_FOLDER_H_
