#ifndef SHIM_CLASSIFY_CODE_NAMES_H_
#define SHIM_CLASSIFY_CODE_NAMES_H_

// Names the code at instruction pointers, from the ELF tables of the modules
// that hold it: first from the loaded .dynsym, then from .symtab of the file on
// disk, if it has one and is still the file that was loaded.

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// Number of frames of a stack that are named, starting with the innermost.
inline constexpr size_t kNamedFrames = 32;

struct CodeName {
  char symbol[512];  // mangled, cut if longer; empty if no name was found
  char module[64];   // basename of its file; empty if it is in no module
};

// Working memory for one call of NameCode. It must not be on a stack, since a
// host's threads may have small ones.
struct NamingBuffer {
  CodeName names[kNamedFrames];
  alignas(8) char file[65536];
};

// Fills buffer->names[0, count) for the return addresses `ips`; count ≤
// kNamedFrames. Their code cannot be unloaded during the call, because it is on
// the calling thread's stack. Safe on any thread; allocates nothing. It reads
// files and never maps them, since a mapped file that is cut short would raise
// SIGBUS in the host. Because of these reads, do not call it under a lock that
// other threads wait for.
void NameCode(const uint64_t* ips, size_t count, NamingBuffer* buffer);

// Number of modules that have been unloaded. When it changes, cached facts
// about addresses may be wrong. Takes the loader's lock, briefly.
uint64_t UnloadCount();

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_CODE_NAMES_H_
