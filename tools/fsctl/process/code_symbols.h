#ifndef TOOLS_FSCTL_PROCESS_CODE_SYMBOLS_H_
#define TOOLS_FSCTL_PROCESS_CODE_SYMBOLS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/types/optional.h"

namespace fineserve::fsctl {

// The functions and variables of one ELF file, from its .symtab and .dynsym.
// Trusts nothing in the file: a process may map any file.
class CodeSymbols {
 public:
  // Reads a 64-bit ELF file of this machine's byte order. Takes nothing from
  // any other file, and nothing that points outside of the file.
  static CodeSymbols Read(const std::string& path);
  static CodeSymbols Parse(const std::string& file);

  // The demangled function at `offset` from the file's lowest mapping:
  // "a::b(int)+0x12"; empty if there is none.
  std::string Name(uint64_t offset) const;
  // The offset of a variable of C from the file's lowest mapping; nullopt if
  // there is none of this name.
  absl::optional<uint64_t> OffsetOf(const std::string& variable) const;

 private:
  struct Function {
    uint64_t bytes;
    std::string name;  // mangled
  };
  void AddTable(const std::string& file, uint64_t section_offset,
                uint64_t section_index);

  uint64_t lowest_ = 0;  // virtual address of the lowest mapping
  std::map<uint64_t, Function> functions_;     // by virtual address
  std::map<std::string, uint64_t> variables_;  // virtual addresses
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_CODE_SYMBOLS_H_
