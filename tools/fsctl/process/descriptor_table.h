#ifndef TOOLS_FSCTL_PROCESS_DESCRIPTOR_TABLE_H_
#define TOOLS_FSCTL_PROCESS_DESCRIPTOR_TABLE_H_

#include <sys/types.h>

#include <string>

namespace fineserve::fsctl {

// "its descriptor table is full (994 of 1024); …", if the process accepts no
// connection for want of descriptors. Empty if it does, or if this user may not
// see it.
std::string FullDescriptorTable(pid_t pid);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_DESCRIPTOR_TABLE_H_
