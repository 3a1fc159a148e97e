#ifndef TOOLS_FSCTL_PROCESS_ADDRESS_MAP_H_
#define TOOLS_FSCTL_PROCESS_ADDRESS_MAP_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/fsctl/process/code_symbols.h"

namespace fineserve::fsctl {

// The files that a process has mapped, to name an instruction pointer by them.
// It shows the process as it is now: a module that was unloaded since the
// stack was captured is not there any more.
class AddressMap {
 public:
  // Reads the text of /proc/PID/maps; lines that are none are skipped.
  static AddressMap Parse(const std::string& maps);

  // "libtorch_cuda.so+0x1234", the offset counted from the module's lowest
  // mapping (what addr2line takes for a shared object); the bare address if it
  // lies in no file.
  std::string Name(uint64_t address) const;

  // Names functions too: "a::b(int)+0x12 (libtorch_cuda.so+0x1234)". `root` is
  // where the process sees its files: /proc/PID/root. Files are read when the
  // first address in them is named.
  void NameFunctionsUnder(const std::string& root) { root_ = root; }

  // The path of the first file whose name begins so; empty if none is mapped.
  std::string PathOf(const std::string& name_prefix) const;

  // True if a file of this name (without folders) is mapped.
  bool HasModule(const std::string& name) const;

 private:
  std::string FunctionName(const std::string& path, uint64_t offset) const;

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

#endif  // TOOLS_FSCTL_PROCESS_ADDRESS_MAP_H_
