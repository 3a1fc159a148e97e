#ifndef SHIM_HOST_ELF_MODULE_H_
#define SHIM_HOST_ELF_MODULE_H_

// Loaded modules and the symbols they define, read from their own ELF tables.
// The shim implements dlsym, so it cannot call dlsym; dlvsym would need a
// symbol version, which differs by architecture and C library.

#include <link.h>

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// A loaded module. Plain data that points into the module and is valid while
// the module stays loaded. `position` is its place in the link map of the
// program's own namespace, 0 being the executable.
struct Module {
  uintptr_t base = 0;
  const ElfW(Dyn) * dynamic = nullptr;
  size_t position = 0;
  const char* path = nullptr;  // empty for the executable
  const ElfW(Phdr) * segments = nullptr;
  size_t segment_count = 0;
};

// A symbol table as it is loaded in memory. Points into the module.
struct SymbolTable {
  const ElfW(Sym) * symbols = nullptr;
  size_t count = 0;
  const char* strings = nullptr;
};

// The following functions may be called on any thread, before any constructor
// has run, and inside dlsym. They take the loader's (recursive) lock, allocate
// nothing and leave dlerror's state alone.

// Finds the first module whose DT_SONAME is `soname`.
bool FindModuleBySoname(const char* soname, Module* out);

// Finds the module whose code or data holds `address`.
bool FindModuleByAddress(const void* address, Module* out);

// Finds the module at a position in the link map; false past its end.
bool FindModuleByPosition(size_t position, Module* out);

// Returns the address of the global or weak function `name` that `module`
// defines (its default version if there are several), or null.
void* FindDefinition(const Module& module, const char* name);

// Returns every dynamic symbol that `module` defines or needs.
SymbolTable DynamicSymbols(const Module& module);

}  // namespace fineserve::shim

#endif  // SHIM_HOST_ELF_MODULE_H_
