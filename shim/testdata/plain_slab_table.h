#ifndef SHIM_TESTDATA_PLAIN_SLAB_TABLE_H_
#define SHIM_TESTDATA_PLAIN_SLAB_TABLE_H_

#include <string.h>

#include <cstdint>
#include <vector>

#include "daemon/contract/abi/engine_entry.h"
#include "daemon/contract/abi/slab_table.h"

namespace fineserve::shim {

// A slab table in plain memory that a test writes in place of the daemon. At
// first it has no engine, and every slab is free.
class PlainSlabTable {
 public:
  explicit PlainSlabTable(uint32_t slabs)
      : words_(abi::TableBytes(slabs) / sizeof(uint64_t)) {
    abi::TableHeader* h = header();
    memcpy(h->magic, abi::kTableMagic, sizeof(h->magic));
    h->abi_version = abi::kAbiVersion;
    h->slab_count = slabs;
    h->engines_offset = sizeof(abi::TableHeader);
    h->slabs_offset =
        h->engines_offset + abi::kEngineCapacity * sizeof(abi::EngineEntry);
  }
  PlainSlabTable(const PlainSlabTable&) = delete;
  PlainSlabTable& operator=(const PlainSlabTable&) = delete;

  abi::TableHeader* header() { return At<abi::TableHeader>(0); }
  abi::EngineEntry* engines() {
    return At<abi::EngineEntry>(header()->engines_offset);
  }
  abi::SlabEntry* slabs() { return At<abi::SlabEntry>(header()->slabs_offset); }
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }

  void Write(uint32_t slot, const abi::EngineRecord& record) {
    abi::StoreRecord(record, &engines()[slot]);
  }

 private:
  template <typename T>
  T* At(uint32_t offset) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(words_.data()) +
                                offset);
  }

  std::vector<uint64_t> words_;
};

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_PLAIN_SLAB_TABLE_H_
