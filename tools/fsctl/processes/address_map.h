#ifndef TOOLS_FSCTL_PROCESSES_ADDRESS_MAP_H_
#define TOOLS_FSCTL_PROCESSES_ADDRESS_MAP_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/optional.h"

namespace fineserve::fsctl {

// The functions and variables of one ELF file, from its .symtab and .dynsym.
// Does not trust the file's content, since a process may map any file.
class CodeSymbols {
 public:
  // Reads a 64-bit ELF file of this machine's byte order. Ignores any other
  // file, and everything that points outside the file.
  static CodeSymbols Read(const std::string& path);
  static CodeSymbols Parse(const std::string& file);

  // Returns the demangled function at `offset` from the file's lowest mapping:
  // "a::b(int)+0x12"; empty if there is none.
  std::string Name(uint64_t offset) const;
  // Returns the offset of a C variable from the file's lowest mapping; nullopt
  // if there is none of this name.
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

// The files that a process has mapped. Names instruction pointers. Shows the
// process as it is now: a module that was unloaded after a stack was captured
// is missing.
class AddressMap {
 public:
  struct Place {
    std::string function;  // "a::b(int)+0x12"; empty: unknown
    std::string module;    // file without folders; empty: no file is mapped
    uint64_t offset = 0;   // from the module's lowest mapping
  };

  // Parses the text of /proc/PID/maps; skips malformed lines.
  static AddressMap Parse(const std::string& maps);

  // Returns "libtorch_cuda.so+0x1234", with the offset from the module's lowest
  // mapping (as addr2line expects it for a shared object); the bare address if
  // no file is mapped there.
  std::string Name(uint64_t address) const;
  Place PlaceOf(uint64_t address) const;
  // Returns the lowest mapping of the file that is mapped at `address`; nullopt
  // if no file is mapped there.
  absl::optional<uint64_t> BaseOf(uint64_t address) const;

  // Makes Name and PlaceOf return functions too: "a::b(int)+0x12
  // (libtorch_cuda.so+0x1234)". `root` is the process's root folder,
  // /proc/PID/root. A file is read when its first address is named.
  void NameFunctionsUnder(const std::string& root) { root_ = root; }

  // Returns the path of the first mapped file whose name has this prefix; empty
  // if there is none.
  std::string PathOf(const std::string& name_prefix) const;

  // Returns the address of a variable of the mapped file at `path`; nullopt if
  // the file has none of this name.
  absl::optional<uint64_t> AddressOf(const std::string& path,
                                     const std::string& variable) const;

  // True if a file of this name (without its folder) is mapped.
  bool HasModule(const std::string& name) const;

 private:
  const std::string* FileAt(uint64_t address) const;  // its path; null: none
  std::string FunctionName(const std::string& path, uint64_t offset) const;
  const CodeSymbols& SymbolsOf(const std::string& path) const;

  struct Piece {
    uint64_t end;
    std::string path;
  };
  std::map<uint64_t, Piece> pieces_;                    // by start
  std::map<std::string, uint64_t> bases_;               // lowest start, by path
  std::string root_;                                    // empty: no functions
  mutable std::map<std::string, CodeSymbols> symbols_;  // by path, once read
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESSES_ADDRESS_MAP_H_
