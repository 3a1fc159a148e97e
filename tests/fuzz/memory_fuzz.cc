// Fuzzes the readers with any bytes as slab table, engine scoreboard or view
// scoreboard: they return a snapshot within its bounds, or an error, and never
// crash. An engine that reads such a table stays within its own bounds, too.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "daemon/fineserved/pool_service/scoreboard_memfd.h"
#include "daemon/pool/table_writer.h"
#include "kernels/driver/descriptor.h"
#include "shim/view/view_leases.h"
#include "tests/fuzz/target.h"

namespace fineserve::fuzz {
namespace {

driver::Descriptor Memfd(const uint8_t* bytes, size_t count) {
  driver::Descriptor fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (pwrite(fd.get(), bytes, count, 0) != static_cast<ssize_t>(count)) abort();
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return fd;
}

std::vector<uint8_t> BytesOf(int fd, size_t count) {
  std::vector<uint8_t> bytes(count);
  if (pread(fd, bytes.data(), count, 0) != static_cast<ssize_t>(count)) abort();
  return bytes;
}

}  // namespace

std::vector<std::vector<uint8_t>> Seeds() {
  const ManualClock clock;
  slab::TableIdentity identity;
  identity.epoch = 1;
  identity.geometry = {2 << 20, 4, 10};
  const auto table = *slab::TableWriter::Create(identity, &clock);
  const auto engine =
      *server::MakeEngineScoreboard(1, slab::EngineId{1}, getpid());
  const auto view =
      *server::ViewScoreboardMemfd::Create(1, slab::EngineId{1}, 7, 10);
  table->SetSlab(slab::SlabId{2}, {abi::SlabState::kPartial, 1, 3});
  return {BytesOf(table->descriptor(), abi::TableBytes(10)),
          BytesOf(engine.descriptor(), abi::kScoreboardBytes),
          BytesOf(view.descriptor(), abi::ViewScoreboardBytes(10))};
}

// Reads the table as engine 1, which has a view of ten slabs. The shim gets the
// size from the kernel.
void ReadAsEngine(const uint8_t* bytes, size_t count) {
  alignas(8) static uint8_t table[abi::TableBytes(64)];
  if (count == 0 || count > sizeof(table)) return;
  memcpy(table, bytes, count);
  shim::ViewLeases leases;
  constexpr uint32_t kViews = 10;
  if (!leases.Open(table, count, /*slot=*/0, /*engine_id=*/1, kViews)) return;
  leases.Look();
  uint32_t sum = 0;
  for (int hold = 0; hold < shim::ViewLeases::kHoldCount; ++hold) {
    sum += leases.count(static_cast<shim::ViewLeases::Hold>(hold));
  }
  if (sum != kViews) abort();  // a slab in two states, or in none
  leases.Close();
}

}  // namespace fineserve::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const auto fd = fineserve::fuzz::Memfd(bytes, count);
  if (const auto reader = fineserve::abi::TableReader::Map(fd.get());
      reader.ok()) {
    const auto table = reader->Read();
    if (table.ok() && fineserve::abi::TableBytes(
                          static_cast<uint32_t>(table->slabs.size())) > count) {
      abort();  // more slabs than the file holds
    }
  }
  const auto scoreboard = fineserve::abi::ReadScoreboard(fd.get());
  if (scoreboard.ok() &&
      scoreboard->decisions.size() > fineserve::abi::kDecisionCapacity) {
    abort();
  }
  const auto view = fineserve::abi::ReadViewScoreboard(fd.get());
  if (view.ok() && sizeof(fineserve::abi::ViewScoreboardHeader) +
                           view->used.size() * sizeof(view->used[0]) >
                       count) {
    abort();  // more slabs than the file holds
  }
  fineserve::fuzz::ReadAsEngine(bytes, count);
  return 0;
}
