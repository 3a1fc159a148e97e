#include "tools/fsctl/process/address_map.h"

#include <cinttypes>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Printable: a file name may hold any bytes.
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
  // A return address: one byte less is in the call, which may be the last
  // instruction of its function.
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

}  // namespace fineserve::fsctl
