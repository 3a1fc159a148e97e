#ifndef SHIM_CLASSIFY_CODE_NAMES_H_
#define SHIM_CLASSIFY_CODE_NAMES_H_

// Names of the code at instruction pointers, from the ELF tables of the
// modules that hold it: .dynsym as it is loaded, then .symtab of the file on
// disk, if it has one and is still the file that was loaded.

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// A stack that is looked at: frames beyond are not.
inline constexpr size_t kNamedFrames = 32;

struct CodeName {
  char symbol[512];  // mangled, cut if longer; empty: no name was found
  char module[64];   // basename of its file; empty: in no module
};

// Room for one call of NameCode. Not for a stack: a host's threads may have
// small ones.
struct NamingRoom {
  CodeName names[kNamedFrames];
  alignas(8) char file[65536];
};

// Fills room->names[0, count) for return addresses `ips`, count ≤
// kNamedFrames. The code at them cannot be unloaded meanwhile: it is on the
// calling thread's stack. Any thread. Allocates nothing. Reads files (never
// maps them: one that is cut short would raise SIGBUS in the host), so not
// under a lock that others wait for.
void NameCode(const uint64_t* ips, size_t count, NamingRoom* room);

// Changes whenever a module has been unloaded: what was known of addresses
// before may be wrong now. Takes the loader's lock, briefly.
uint64_t UnloadCount();

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_CODE_NAMES_H_
