#include "daemon/fineserved/store/inventory_file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/contract/abi/sealed_memfd.h"

namespace fineserve::store {
namespace {

std::vector<char> ReadWhole(int file) {
  struct stat st = {};
  fstat(file, &st);
  std::vector<char> bytes(static_cast<size_t>(st.st_size));
  const ssize_t read = pread(file, bytes.data(), bytes.size(), 0);
  bytes.resize(read > 0 ? static_cast<size_t>(read) : 0);
  return bytes;
}

}  // namespace

absl::StatusOr<driver::Descriptor> WriteInventory(
    size_t files, const std::vector<abi::InventoryEntry>& entries) {
  const abi::InventoryHeader header = {abi::kInventoryMagic,
                                       static_cast<uint32_t>(files),
                                       static_cast<uint32_t>(entries.size())};
  const size_t list_bytes = entries.size() * sizeof(entries[0]);
  const abi::SealedMemfd list = abi::SealedMemfd::Create(
      "fineserve-inventory", sizeof(header) + list_bytes);
  driver::Descriptor read_only;
  if (list.valid()) read_only = list.ReadOnly();
  if (!read_only.valid()) {
    return absl::ResourceExhaustedError("the inventory cannot be made");
  }
  memcpy(list.base(), &header, sizeof(header));
  if (list_bytes != 0) {
    memcpy(static_cast<char*>(list.base()) + sizeof(header), entries.data(),
           list_bytes);
  }
  list.SealAgainstWriters();
  return read_only;
}

absl::StatusOr<std::vector<abi::InventoryEntry>> ReadInventory(int list,
                                                               size_t files) {
  const std::vector<char> bytes = ReadWhole(list);
  abi::InventoryHeader header = {};
  if (bytes.size() >= sizeof(header)) {
    memcpy(&header, bytes.data(), sizeof(header));
  }
  std::vector<abi::InventoryEntry> entries;
  if (header.magic != abi::kInventoryMagic || header.files != files ||
      bytes.size() != sizeof(header) + header.count * sizeof(entries[0])) {
    return absl::InvalidArgumentError("this is no inventory of a store");
  }
  entries.resize(header.count);
  if (!entries.empty()) {
    memcpy(entries.data(), bytes.data() + sizeof(header),
           entries.size() * sizeof(entries[0]));
  }
  if (std::any_of(entries.begin(), entries.end(),
                  [&](const auto& entry) { return entry.file >= files; })) {
    return absl::InvalidArgumentError(
        "an inventory names files that did not come with it");
  }
  return entries;
}

}  // namespace fineserve::store
