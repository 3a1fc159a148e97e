// Allocates without passing any interposer: finds the driver's function in the
// loaded library's own symbol table, as some profilers and copy protections do.

#include <elf.h>
#include <link.h>
#include <string.h>

#include "kernels/driver/cuda_types.h"

using fineserve::driver::CUdeviceptr;
using fineserve::driver::CUresult;

namespace {

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
};

Tables TablesOf(const ElfW(Dyn) * dynamic) {
  Tables tables;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) {
      tables.symbols = reinterpret_cast<const ElfW(Sym)*>(dynamic->d_un.d_ptr);
    } else if (dynamic->d_tag == DT_STRTAB) {
      tables.strings = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
    }
  }
  return tables;
}

void* Find(const link_map* library, const char* name) {
  const Tables tables = TablesOf(library->l_ld);
  // Linkers place the string table directly behind the symbols.
  const auto* end = reinterpret_cast<const ElfW(Sym)*>(tables.strings);
  for (const ElfW(Sym)* symbol = tables.symbols; symbol < end; ++symbol) {
    if (symbol->st_value != 0 &&
        strcmp(tables.strings + symbol->st_name, name) == 0) {
      return reinterpret_cast<void*>(library->l_addr + symbol->st_value);
    }
  }
  return nullptr;
}

void* FindInDriver(const char* name) {
  for (const link_map* m = _r_debug.r_map; m != nullptr; m = m->l_next) {
    if (strstr(m->l_name, "/libcuda.so.1") != nullptr) return Find(m, name);
  }
  return nullptr;
}

}  // namespace

extern "C" CUdeviceptr allocate_kv(size_t bytes) {
  const auto allocate = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(
      FindInDriver("cuMemAlloc_v2"));
  CUdeviceptr address = 0;
  if (allocate != nullptr) allocate(&address, bytes);
  return address;
}
