#include "bench/micro/handover_watch.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "bench/micro/report.h"
#include "daemon/abi/observer_link.h"
#include "daemon/abi/table_reader.h"
#include "daemon/finding/daemon_sockets.h"

namespace fineserve::bench {
namespace {

using abi::SlabState;

constexpr useconds_t kLookEveryUs = 20;

// A slab, by what was seen of it since it was asked back. 0: not seen.
struct Passage {
  abi::SlabSnapshot now;
  uint32_t from = 0;  // the engine that was asked
  uint64_t asked_ns = 0, returned_ns = 0;
};

double Ms(uint64_t from_ns, uint64_t to_ns) {
  return 1e-6 * static_cast<double>(to_ns - from_ns);
}

void NoteLease(const Passage& p, HandOvers* seen) {
  const uint64_t leased_ns = p.now.since_ns;
  if (p.asked_ns == 0 || p.now.word.engine == p.from) return;
  seen->whole_ms.push_back(Ms(p.asked_ns, leased_ns));
  if (p.returned_ns == 0) return;
  seen->return_ms.push_back(Ms(p.asked_ns, p.returned_ns));
  seen->zero_ms.push_back(Ms(p.returned_ns, leased_ns));
}

void Look(const abi::SlabSnapshot& slab, Passage* p, HandOvers* seen) {
  if (abi::SlabWord::Pack(slab.word) == abi::SlabWord::Pack(p->now.word)) {
    return;
  }
  p->now = slab;
  switch (slab.word.state) {
    case SlabState::kReturning:
      *p = {slab, slab.word.engine, slab.since_ns, 0};
      break;
    case SlabState::kZeroing:
      p->returned_ns = slab.since_ns;
      break;
    case SlabState::kFree:
      break;
    default:
      NoteLease(*p, seen);
      *p = {slab, 0, 0, 0};
  }
}

}  // namespace

HandOvers Watch(const std::atomic<bool>* ending) {
  const auto sockets = finding::ListSockets(getenv("FINESERVE_RUNTIME_DIR"));
  if (sockets.size() != 1) Die("there is not one fineserved");
  const auto link = abi::ConnectObserver(sockets[0]);
  if (!link.ok()) Die(std::string(link.status().message()));
  const auto reader = abi::TableReader::Map(link->table.get());
  if (!reader.ok()) Die(std::string(reader.status().message()));
  HandOvers seen;
  std::vector<Passage> passages;
  while (!*ending) {
    usleep(kLookEveryUs);
    const auto table = reader->Read();
    if (!table.ok()) Die(std::string(table.status().message()));
    passages.resize(table->slabs.size());
    for (size_t i = 0; i < passages.size(); ++i) {
      Look(table->slabs[i], &passages[i], &seen);
    }
    seen.asked_back = table->counters.slabs_asked_back;
  }
  return seen;
}

}  // namespace fineserve::bench
