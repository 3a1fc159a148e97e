#include "tools/fsctl/process/code_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/process/read_file.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Mappings begin at multiples of a memory page.
constexpr uint64_t kMappingMask = 4095;

// The T at `offset`; all zero if the file ends before it does.
template <typename T>
T At(const std::string& file, uint64_t offset) {
  T value = {};
  if (offset <= file.size() && file.size() - offset >= sizeof(T)) {
    memcpy(&value, file.data() + offset, sizeof(T));
  }
  return value;
}

// The text up to a NUL or the end of the file.
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
  return Parse(ReadFile(path));
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
      // Libraries of C++ have a table and a type's name for each class.
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
