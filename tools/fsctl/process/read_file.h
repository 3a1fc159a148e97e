#ifndef TOOLS_FSCTL_PROCESS_READ_FILE_H_
#define TOOLS_FSCTL_PROCESS_READ_FILE_H_

#include <string>

namespace fineserve::fsctl {

// All bytes of a file; empty if it cannot be read.
std::string ReadFile(const std::string& path);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_READ_FILE_H_
