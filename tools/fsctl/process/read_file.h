#ifndef TOOLS_FSCTL_PROCESS_READ_FILE_H_
#define TOOLS_FSCTL_PROCESS_READ_FILE_H_

#include <sys/types.h>

#include <string>

namespace fineserve::fsctl {

// All bytes of a file; empty if it cannot be read, such as one of a process
// that has just ended.
std::string ReadFile(const std::string& path);

// The last line with text in it that begins in the last 4 KiB of an open file
// and not before `begin`; empty if there is none.
std::string LastLine(int file, off_t begin = 0);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_READ_FILE_H_
