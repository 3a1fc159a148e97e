#include "shim/classify/code_names.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/host/elf_module.h"

namespace fineserve::shim {
namespace {

using Sym = ElfW(Sym);
using Shdr = ElfW(Shdr);

// Limits that bound the cost of a malformed file.
constexpr size_t kMostSections = 4096;
constexpr size_t kMostSymbols = 4 << 20;

// The frames of one module that have no name yet.
class Group {
 public:
  Group(const Module& module, NamingBuffer* buffer) : base_(module.base) {
    buffer_ = buffer;
  }

  void Add(size_t frame, uint64_t ip) {
    frames_[count_++] = {frame, ip - base_, 0, false};
  }

  // Notes `symbol` as the name of the frames inside it.
  void Offer(const Sym& symbol) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
        symbol.st_shndx == SHN_UNDEF) {
      return;
    }
    for (size_t i = 0; i < count_; ++i) {
      Frame& f = frames_[i];
      if (f.found || f.offset - symbol.st_value >= symbol.st_size) continue;
      f.found = true;
      f.name = symbol.st_name;
    }
  }

  // For each frame whose symbol was found, calls `copy(name, out)` with the
  // name's offset in the string table and the space for the name, then forgets
  // the frame.
  template <typename Copy>
  void TakeFound(Copy copy) {
    size_t left = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (frames_[i].found) {
        copy(frames_[i].name, &buffer_->names[frames_[i].index].symbol);
      } else {
        frames_[left++] = frames_[i];
      }
    }
    count_ = left;
  }

  bool empty() const { return count_ == 0; }

 private:
  struct Frame {
    size_t index;     // in buffer->names
    uint64_t offset;  // from the module's base
    uint64_t name;
    bool found;
  };
  uintptr_t base_;
  NamingBuffer* buffer_;
  Frame frames_[kNamedFrames];
  size_t count_ = 0;
};

template <size_t N>
void CopyCut(const char* from, char (*to)[N]) {
  const size_t bytes = strnlen(from, N - 1);
  memcpy(*to, from, bytes);
  (*to)[bytes] = '\0';
}

void NameFromMemory(const Module& module, Group* group) {
  const SymbolTable table = DynamicSymbols(module);
  for (size_t i = 0; i < table.count; ++i) group->Offer(table.symbols[i]);
  group->TakeFound(
      [&](uint64_t name, auto* to) { CopyCut(table.strings + name, to); });
}

// A module's file, read piece by piece.
class ElfFile {
 public:
  ElfFile(const char* path, NamingBuffer* buffer)
      : fd_(open(path, O_RDONLY | O_CLOEXEC)), buffer_(buffer) {}
  ~ElfFile() {
    if (fd_ >= 0) close(fd_);
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  // True if `module` was loaded from this file, as far as the program headers
  // show: a package may have been upgraded since the load.
  bool IsOf(const Module& module) {
    const size_t bytes = module.segment_count * sizeof(ElfW(Phdr));
    return ReadAt(0, &header_, sizeof(header_)) &&
           memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
           header_.e_shentsize == sizeof(Shdr) &&
           header_.e_phentsize == sizeof(ElfW(Phdr)) &&
           header_.e_phnum == module.segment_count &&
           bytes <= sizeof(buffer_->file) &&
           ReadAt(header_.e_phoff, buffer_->file, bytes) &&
           memcmp(buffer_->file, module.segments, bytes) == 0;
  }

  void Name(Group* group) {
    Shdr symbols;
    Shdr strings;
    if (!FindSymbols(&symbols) || !ReadSection(symbols.sh_link, &strings)) {
      return;
    }
    const size_t count =
        std::min<size_t>(symbols.sh_size / sizeof(Sym), kMostSymbols);
    // As many whole entries as the buffer holds.
    // NOLINTNEXTLINE(bugprone-sizeof-expression)
    constexpr size_t kAtOnce = sizeof(NamingBuffer::file) / sizeof(Sym);
    for (size_t i = 0; i < count; i += kAtOnce) {
      const size_t n = std::min(kAtOnce, count - i);
      if (!ReadAt(symbols.sh_offset + i * sizeof(Sym), buffer_->file,
                  n * sizeof(Sym))) {
        return;
      }
      OfferAll(n, group);
    }
    group->TakeFound([&](uint64_t name, auto* to) {
      ReadText(strings.sh_offset + name, to);
    });
  }

 private:
  bool ReadAt(uint64_t offset, void* to, size_t bytes) {
    return pread(fd_, to, bytes, static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(bytes);
  }

  // Reads up to N - 1 bytes, because the file may end before the buffer does.
  template <size_t N>
  void ReadText(uint64_t offset, char (*to)[N]) {
    const ssize_t n = pread(fd_, *to, N - 1, static_cast<off_t>(offset));
    (*to)[n > 0 ? n : 0] = '\0';
  }

  bool ReadSection(size_t index, Shdr* out) {
    return index < std::min<size_t>(header_.e_shnum, kMostSections) &&
           ReadAt(header_.e_shoff + index * sizeof(Shdr), out, sizeof(*out));
  }

  bool FindSymbols(Shdr* out) {
    for (size_t i = 0; ReadSection(i, out); ++i) {
      if (out->sh_type == SHT_SYMTAB) return out->sh_entsize == sizeof(Sym);
    }
    return false;
  }

  void OfferAll(size_t count, Group* group) {
    for (size_t i = 0; i < count; ++i) {
      Sym symbol;
      memcpy(&symbol, buffer_->file + i * sizeof(Sym), sizeof(symbol));
      group->Offer(symbol);
    }
  }

  const int fd_;
  NamingBuffer* const buffer_;
  ElfW(Ehdr) header_ = {};
};

void NameFromFile(const Module& module, NamingBuffer* buffer, Group* group) {
  // The loader stores no path for the executable itself.
  const bool program = module.path == nullptr || module.path[0] == '\0';
  ElfFile file(program ? "/proc/self/exe" : module.path, buffer);
  if (file.IsOf(module)) file.Name(group);
}

void CopyBasename(const Module& module, char (*to)[64]) {
  char program[512] = "";
  const char* path = module.path;
  if (path == nullptr || path[0] == '\0') {
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) return;
    path = program;
  }
  const char* slash = strrchr(path, '/');
  CopyCut(slash == nullptr ? path : slash + 1, to);
}

bool Covers(const Module& module, uint64_t ip) {
  for (size_t i = 0; i < module.segment_count; ++i) {
    const ElfW(Phdr)& s = module.segments[i];
    if (s.p_type == PT_LOAD && ip - (module.base + s.p_vaddr) < s.p_memsz) {
      return true;
    }
  }
  return false;
}

}  // namespace

void NameCode(const uint64_t* ips, size_t count, NamingBuffer* buffer) {
  count = std::min(count, kNamedFrames);
  bool done[kNamedFrames] = {};
  for (size_t i = 0; i < count; ++i) buffer->names[i] = {};
  for (size_t i = 0; i < count; ++i) {
    Module module;
    // Looks up ips[i] - 1, because a call may be the last instruction of its
    // function.
    if (done[i] || !FindModuleByAddress(
                       reinterpret_cast<const void*>(ips[i] - 1), &module)) {
      continue;
    }
    Group group(module, buffer);
    for (size_t j = i; j < count; ++j) {
      if (done[j] || !Covers(module, ips[j] - 1)) continue;
      done[j] = true;
      CopyBasename(module, &buffer->names[j].module);
      group.Add(j, ips[j] - 1);
    }
    NameFromMemory(module, &group);
    if (!group.empty()) NameFromFile(module, buffer, &group);
  }
}

uint64_t UnloadCount() {
  uint64_t count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uint64_t*>(out) = info->dlpi_subs;
        return 1;  // the same for every module
      },
      &count);
  return count;
}

}  // namespace fineserve::shim
