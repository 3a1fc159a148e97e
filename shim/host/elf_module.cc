#include "shim/host/elf_module.h"

#include "shim/host/same_text.h"

namespace fineserve::shim {
namespace {

using Sym = ElfW(Sym);

// The tables in a module's dynamic section that a lookup needs.
struct Tables {
  const char* strings = nullptr;
  const Sym* symbols = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const ElfW(Half) * versions = nullptr;
  const char* soname = nullptr;
};

// glibc relocates these entries in place, except in read-only dynamic sections
// (the vDSO's), where they stay relative to the base.
uintptr_t Absolute(const Module& module, const ElfW(Dyn) & entry) {
  const uintptr_t value = entry.d_un.d_ptr;
  return value < module.base ? module.base + value : value;
}

template <typename T>
const T* At(const Module& module, const ElfW(Dyn) & entry) {
  return reinterpret_cast<const T*>(Absolute(module, entry));
}

Tables ReadTables(const Module& module) {
  Tables t;
  const ElfW(Dyn)* soname = nullptr;
  for (const ElfW(Dyn)* d = module.dynamic; d->d_tag != DT_NULL; ++d) {
    switch (d->d_tag) {
      case DT_STRTAB:
        t.strings = At<char>(module, *d);
        break;
      case DT_SYMTAB:
        t.symbols = At<Sym>(module, *d);
        break;
      case DT_GNU_HASH:
        t.gnu_hash = At<uint32_t>(module, *d);
        break;
      case DT_HASH:
        t.sysv_hash = At<uint32_t>(module, *d);
        break;
      case DT_VERSYM:
        t.versions = At<ElfW(Half)>(module, *d);
        break;
      case DT_SONAME:
        soname = d;
        break;
    }
  }
  if (soname != nullptr && t.strings != nullptr) {
    t.soname = t.strings + soname->d_un.d_val;
  }
  return t;
}

// True for a definition that other modules may bind to: a function that is
// present and whose version is not kept for old binaries only (the hidden bit
// of its version index).
bool IsDefaultDefinition(const Tables& t, uint32_t index, const char* name) {
  constexpr ElfW(Half) kHiddenVersion = 0x8000;
  const Sym& s = t.symbols[index];
  const unsigned type = ELF64_ST_TYPE(s.st_info);
  if (s.st_shndx == SHN_UNDEF || s.st_value == 0) return false;
  if (type != STT_FUNC && type != STT_NOTYPE) return false;
  if (ELF64_ST_BIND(s.st_info) == STB_LOCAL) return false;
  if (t.versions != nullptr && (t.versions[index] & kHiddenVersion) != 0) {
    return false;
  }
  return SameText(t.strings + s.st_name, name);
}

uint32_t GnuHash(const char* name) {
  uint32_t h = 5381;
  for (; *name != '\0'; ++name) h = h * 33 + static_cast<uint8_t>(*name);
  return h;
}

uint32_t SysvHash(const char* name) {
  uint32_t h = 0;
  for (; *name != '\0'; ++name) {
    h = (h << 4) + static_cast<uint8_t>(*name);
    const uint32_t high = h & 0xf0000000;
    h = (h ^ (high >> 24)) & ~high;
  }
  return h;
}

// DT_GNU_HASH: {bucket count, first symbol, bloom words, bloom shift}, the
// bloom filter in native words, the buckets, then one hash for each symbol,
// whose lowest bit marks the end of a chain.
const Sym* FindInGnuHash(const Tables& t, const char* name) {
  const uint32_t bucket_count = t.gnu_hash[0];
  const uint32_t first_symbol = t.gnu_hash[1];
  const size_t bloom_words = t.gnu_hash[2];
  if (bucket_count == 0) return nullptr;
  const uint32_t* buckets =
      t.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = buckets + bucket_count;
  const uint32_t hash = GnuHash(name);
  uint32_t i = buckets[hash % bucket_count];
  if (i < first_symbol) return nullptr;
  for (;; ++i) {
    const uint32_t entry = chain[i - first_symbol];
    if ((entry | 1) == (hash | 1) && IsDefaultDefinition(t, i, name)) {
      return &t.symbols[i];
    }
    if ((entry & 1) != 0) return nullptr;
  }
}

const Sym* FindInSysvHash(const Tables& t, const char* name) {
  const uint32_t bucket_count = t.sysv_hash[0];
  const uint32_t symbol_count = t.sysv_hash[1];
  if (bucket_count == 0) return nullptr;
  const uint32_t* buckets = t.sysv_hash + 2;
  const uint32_t* chain = buckets + bucket_count;
  for (uint32_t i = buckets[SysvHash(name) % bucket_count];
       i != STN_UNDEF && i < symbol_count; i = chain[i]) {
    if (IsDefaultDefinition(t, i, name)) return &t.symbols[i];
  }
  return nullptr;
}

bool Covers(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    const uintptr_t start = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= start &&
        address - start < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

Module Describe(const dl_phdr_info& info, size_t position) {
  Module m{info.dlpi_addr, nullptr,        position,
           info.dlpi_name, info.dlpi_phdr, info.dlpi_phnum};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    m.dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr +
                                                   info.dlpi_phdr[i].p_vaddr);
  }
  return m;
}

// Counts the symbols. The symbol table does not store its length, but the hash
// table covers its last symbol.
size_t CountInGnuHash(const uint32_t* hash) {
  const uint32_t bucket_count = hash[0];
  const uint32_t first_symbol = hash[1];
  const uint32_t* buckets =
      hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) {
    if (buckets[i] > last) last = buckets[i];
  }
  if (last < first_symbol) return first_symbol;  // nothing is defined
  while ((chain[last - first_symbol] & 1) == 0) ++last;
  return last + 1;
}

// One walk over the link map. It ends at the first module for which
// `matches(info, module)` is true.
template <typename Matches>
struct Walk {
  Matches matches;
  size_t position = 0;
  Module found = {};

  static int Visit(dl_phdr_info* info, size_t, void* self) {
    auto* walk = static_cast<Walk*>(self);
    const Module module = Describe(*info, walk->position++);
    if (!walk->matches(*info, module)) return 0;
    walk->found = module;
    return 1;
  }
};

template <typename Matches>
bool FindModule(Matches matches, Module* out) {
  Walk<Matches> walk{matches};
  if (dl_iterate_phdr(&Walk<Matches>::Visit, &walk) == 0) return false;
  *out = walk.found;
  return true;
}

}  // namespace

bool FindModuleBySoname(const char* soname, Module* out) {
  return FindModule(
      [soname](const dl_phdr_info&, const Module& m) {
        if (m.dynamic == nullptr) return false;
        const char* own = ReadTables(m).soname;
        return own != nullptr && SameText(own, soname);
      },
      out);
}

bool FindModuleByAddress(const void* address, Module* out) {
  return FindModule(
      [a = reinterpret_cast<uintptr_t>(address)](
          const dl_phdr_info& info, const Module&) { return Covers(info, a); },
      out);
}

bool FindModuleByPosition(size_t position, Module* out) {
  return FindModule(
      [position](const dl_phdr_info&, const Module& m) {
        return m.position == position;
      },
      out);
}

void* FindDefinition(const Module& module, const char* name) {
  if (module.dynamic == nullptr) return nullptr;
  const Tables t = ReadTables(module);
  if (t.symbols == nullptr || t.strings == nullptr) return nullptr;
  const Sym* s = nullptr;
  if (t.gnu_hash != nullptr) {
    s = FindInGnuHash(t, name);
  } else if (t.sysv_hash != nullptr) {
    s = FindInSysvHash(t, name);
  }
  if (s == nullptr) return nullptr;
  return reinterpret_cast<void*>(module.base + s->st_value);
}

SymbolTable DynamicSymbols(const Module& module) {
  if (module.dynamic == nullptr) return {};
  const Tables t = ReadTables(module);
  if (t.symbols == nullptr || t.strings == nullptr) return {};
  if (t.gnu_hash != nullptr) {
    return {t.symbols, CountInGnuHash(t.gnu_hash), t.strings};
  }
  return {t.symbols, t.sysv_hash != nullptr ? t.sysv_hash[1] : 0, t.strings};
}

}  // namespace fineserve::shim
