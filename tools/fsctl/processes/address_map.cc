#include "tools/fsctl/processes/address_map.h"

#include <cxxabi.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/whole_file.h"
#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Returns the file's name made printable, since a file name may contain any
// bytes.
std::string BaseName(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return abi::Printable(name.data(), name.size());
}

}  // namespace

AddressMap AddressMap::Parse(const std::string& maps) {
  AddressMap map;
  for (absl::string_view view : absl::StrSplit(maps, '\n')) {
    const std::string line(view);
    uint64_t start, end;
    int path_at = 0;
    // start-end perms offset device inode path
    if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n",
               &start, &end, &path_at) != 2 ||
        path_at == 0 || start >= end) {
      continue;
    }
    const std::string path = line.substr(path_at);
    if (path.empty() || path[0] != '/') continue;
    map.pieces_[start] = {end, path};
    map.bases_.try_emplace(path, start);  // maps is in ascending order
  }
  return map;
}

const std::string* AddressMap::FileAt(uint64_t address) const {
  auto piece = pieces_.upper_bound(address);
  if (piece == pieces_.begin()) return nullptr;
  --piece;
  return address < piece->second.end ? &piece->second.path : nullptr;
}

absl::optional<uint64_t> AddressMap::BaseOf(uint64_t address) const {
  const std::string* path = FileAt(address);
  if (path == nullptr) return absl::nullopt;
  return bases_.at(*path);
}

AddressMap::Place AddressMap::PlaceOf(uint64_t address) const {
  const std::string* path = FileAt(address);
  if (path == nullptr) return {};
  const uint64_t offset = address - bases_.at(*path);
  return {FunctionName(*path, offset), BaseName(*path), offset};
}

std::string AddressMap::Name(uint64_t address) const {
  const Place at = PlaceOf(address);
  if (at.module.empty()) return Hex(address);
  const std::string place = absl::StrCat(at.module, "+", Hex(at.offset));
  return at.function.empty() ? place
                             : absl::StrCat(at.function, " (", place, ")");
}

std::string AddressMap::FunctionName(const std::string& path,
                                     uint64_t offset) const {
  if (root_.empty()) return "";
  // A return address may follow the last instruction of its function; the byte
  // before it is inside the call.
  return offset == 0 ? "" : SymbolsOf(path).Name(offset - 1);
}

const CodeSymbols& AddressMap::SymbolsOf(const std::string& path) const {
  const auto known = symbols_.find(path);
  if (known != symbols_.end()) return known->second;
  return symbols_.emplace(path, CodeSymbols::Read(root_ + path)).first->second;
}

absl::optional<uint64_t> AddressMap::AddressOf(
    const std::string& path, const std::string& variable) const {
  const auto base = bases_.find(path);
  if (base == bases_.end()) return absl::nullopt;
  const auto offset = SymbolsOf(path).OffsetOf(variable);
  if (!offset) return absl::nullopt;
  return base->second + *offset;
}

std::string AddressMap::PathOf(const std::string& name_prefix) const {
  for (const auto& [path, base] : bases_) {
    if (BaseName(path).compare(0, name_prefix.size(), name_prefix) == 0) {
      return path;
    }
  }
  return "";
}

bool AddressMap::HasModule(const std::string& name) const {
  for (const auto& [path, base] : bases_) {
    if (BaseName(path) == name) return true;
  }
  return false;
}

namespace {

// Mappings begin at multiples of a memory page.
constexpr uint64_t kMappingMask = 4095;

// Returns the T at `offset`; all zero if the file ends before it does.
template <typename T>
T At(const std::string& file, uint64_t offset) {
  T value = {};
  if (offset <= file.size() && file.size() - offset >= sizeof(T)) {
    memcpy(&value, file.data() + offset, sizeof(T));
  }
  return value;
}

// Returns the text up to a NUL or the end of the file.
std::string TextAt(const std::string& file, uint64_t offset) {
  if (offset >= file.size()) return "";
  const char* text = file.data() + offset;
  return std::string(text, strnlen(text, file.size() - offset));
}

std::string Demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&free)> text(
      ::abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &free);
  const std::string out = status == 0 ? text.get() : name;
  return abi::Printable(out.data(), out.size());
}

bool IsElf64(const std::string& file) {
  return file.size() >= sizeof(Elf64_Ehdr) &&
         memcmp(file.data(), ELFMAG, SELFMAG) == 0 &&
         file[EI_CLASS] == ELFCLASS64 && file[EI_DATA] == ELFDATA2LSB;
}

uint64_t LowestAddress(const std::string& file, const Elf64_Ehdr& header) {
  uint64_t lowest = UINT64_MAX;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment =
        At<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD) lowest = std::min(lowest, segment.p_vaddr);
  }
  return lowest == UINT64_MAX ? 0 : lowest & ~kMappingMask;
}

}  // namespace

CodeSymbols CodeSymbols::Read(const std::string& path) {
  return Parse(base::ReadWholeFile(path).value_or(""));
}

CodeSymbols CodeSymbols::Parse(const std::string& file) {
  CodeSymbols symbols;
  if (!IsElf64(file)) return symbols;
  const auto header = At<Elf64_Ehdr>(file, 0);
  symbols.lowest_ = LowestAddress(file, header);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    symbols.AddTable(file, header.e_shoff, i);
  }
  return symbols;
}

void CodeSymbols::AddTable(const std::string& file, uint64_t section_offset,
                           uint64_t section_index) {
  const auto section = [&](uint64_t index) {
    return At<Elf64_Shdr>(file, section_offset + index * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr table = section(section_index);
  if (table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM) return;
  const uint64_t strings = section(table.sh_link).sh_offset;
  const uint64_t count =
      std::min<uint64_t>(table.sh_size, file.size()) / sizeof(Elf64_Sym);
  for (uint64_t i = 0; i < count; ++i) {
    const auto s = At<Elf64_Sym>(file, table.sh_offset + i * sizeof(Elf64_Sym));
    const unsigned type = ELF64_ST_TYPE(s.st_info);
    if ((type != STT_FUNC && type != STT_OBJECT) || s.st_size == 0 ||
        s.st_shndx == SHN_UNDEF) {
      continue;
    }
    const std::string name = TextAt(file, strings + s.st_name);
    if (name.empty()) continue;
    if (type == STT_OBJECT) {
      // Skips C++ names, since C++ libraries have a vtable and type information
      // for every class.
      if (absl::StartsWith(name, "_Z")) continue;
      variables_.try_emplace(name, s.st_value);
    } else {
      functions_.try_emplace(s.st_value, Function{s.st_size, name});
    }
  }
}

absl::optional<uint64_t> CodeSymbols::OffsetOf(
    const std::string& variable) const {
  const auto found = variables_.find(variable);
  if (found == variables_.end()) return absl::nullopt;
  return found->second - lowest_;
}

std::string CodeSymbols::Name(uint64_t offset) const {
  const uint64_t address = lowest_ + offset;
  auto it = functions_.upper_bound(address);
  if (it == functions_.begin()) return "";
  --it;
  const auto& [start, function] = *it;
  if (address - start >= function.bytes) return "";
  return absl::StrCat(Demangle(function.name), "+", Hex(address - start));
}

}  // namespace fineserve::fsctl
