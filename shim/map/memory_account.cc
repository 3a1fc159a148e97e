#include "shim/map/memory_account.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/engine_entry.h"
#include "daemon/contract/abi/slab_table.h"
#include "shim/map/table_bounds.h"

namespace fineserve::shim {
namespace {

using abi::EngineEntry;
using abi::EngineRecord;
using abi::SlabEntry;
using abi::TableHeader;

// Room for the text that follows the list of engines.
constexpr size_t kTailBytes = 192;
// Room for an engine's name and the text about it.
constexpr size_t kEngineBytes = abi::kNameBytes + 64;

// Text that is cut where the room ends.
class Text {
 public:
  Text(char* out, size_t room) : out_(out), room_(room) { out_[0] = '\0'; }

  void Add(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    va_list args;
    va_start(args, format);
    const int wanted = vsnprintf(out_ + used_, room_ - used_, format, args);
    va_end(args);
    if (wanted <= 0) return;
    used_ += static_cast<size_t>(wanted);
    if (used_ >= room_) used_ = room_ - 1;
  }
  void AddBytes(uint64_t bytes) {
    char size[abi::kByteSizeText];
    abi::FormatByteSize(bytes, size);
    Add("%s", size);
  }
  size_t left() const { return room_ - used_; }

 private:
  char* const out_;
  const size_t room_;
  size_t used_ = 0;
};

// The parts of a slab table, after a check that each is within it.
struct Table {
  const EngineEntry* engines;
  const SlabEntry* slabs;
  uint32_t slab_count;
  uint64_t slab_bytes;
};

// Reads each of the header's constants once.
bool Open(const void* table, size_t bytes, Table* out) {
  if (bytes < sizeof(TableHeader)) return false;
  const auto* header = static_cast<const TableHeader*>(table);
  const uint32_t engines = header->engines_offset;
  const uint32_t slabs = header->slabs_offset;
  out->slab_count = header->slab_count;
  out->slab_bytes = header->granule_bytes * header->granules_per_slab;
  if (memcmp(header->magic, abi::kTableMagic, sizeof(header->magic)) != 0 ||
      header->abi_version != abi::kAbiVersion ||
      !TableHolds(bytes, engines, abi::kEngineCapacity, sizeof(EngineEntry)) ||
      !TableHolds(bytes, slabs, out->slab_count, sizeof(SlabEntry))) {
    return false;
  }
  const auto* base = static_cast<const char*>(table);
  out->engines = reinterpret_cast<const EngineEntry*>(base + engines);
  out->slabs = reinterpret_cast<const SlabEntry*>(base + slabs);
  return true;
}

// Copies an engine's record. False if the record kept changing, or if there is
// no such engine.
bool Copy(const EngineEntry& entry, EngineRecord* out) {
  if (!abi::CopyRecord(entry, out)) return false;
  out->name[sizeof(out->name) - 1] = '\0';
  return out->state != abi::EngineState::kUnused;
}

uint64_t PoolBytes(const Table& table) {
  uint64_t present = 0;
  for (uint32_t i = 0; i < table.slab_count; ++i) {
    const auto word = abi::SlabWord::Unpack(
        table.slabs[i].word.load(std::memory_order_relaxed));
    present += word.state != abi::SlabState::kAbsent;
  }
  return present * table.slab_bytes;
}

// Adds all engines to the text, and returns the sum of their bytes.
uint64_t AddEngines(const Table& table, Text* text) {
  uint64_t bytes = 0;
  uint32_t unnamed = 0;
  for (uint32_t i = 0; i < abi::kEngineCapacity; ++i) {
    EngineRecord engine;
    if (!Copy(table.engines[i], &engine) || engine.slabs_held == 0) continue;
    const uint64_t held = engine.slabs_held * table.slab_bytes;
    bytes += held;
    if (text->left() < kTailBytes + kEngineBytes) {
      ++unnamed;
      continue;
    }
    text->Add("%s ", engine.name);
    text->AddBytes(held);
    if (engine.limit != 0) {
      text->Add(" of at most ");
      text->AddBytes(engine.limit * table.slab_bytes);
      text->Add(" by fsctl limit");
    }
    text->Add(engine.state == abi::EngineState::kQuarantined
                  ? " after its end, "
                  : ", ");
  }
  if (unnamed > 0) text->Add("%u more engines, ", unnamed);
  return bytes;
}

}  // namespace

bool DescribeMemory(const driver::EntryPoints& entry, DaemonLink* link,
                    char* out, size_t room) {
  const void* base = nullptr;
  size_t table_bytes = 0;
  Table table;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (!link->FindTable(&base, &table_bytes) ||
      !Open(base, table_bytes, &table) ||
      entry.cuMemGetInfo_v2(&free_bytes, &total_bytes) !=
          driver::CUDA_SUCCESS) {
    return false;
  }
  const uint64_t pool = PoolBytes(table);
  Text text(out, room);
  text.Add("of ");
  text.AddBytes(total_bytes);
  text.Add(" on the device ");
  text.AddBytes(free_bytes);
  text.Add(" are free, the pool has ");
  text.AddBytes(pool);
  text.Add(" (");
  const uint64_t leased = AddEngines(table, &text);
  text.AddBytes(pool > leased ? pool - leased : 0);
  text.Add(" not leased), ");
  const uint64_t known = free_bytes + pool;
  text.AddBytes(total_bytes > known ? total_bytes - known : 0);
  text.Add(" are elsewhere (weights, activations, contexts, other programs)");
  return true;
}

}  // namespace fineserve::shim
