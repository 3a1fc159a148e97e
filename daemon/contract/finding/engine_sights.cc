#include "daemon/contract/finding/engine_sights.h"

#include <string.h>
#include <unistd.h>

#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::finding {
namespace {

void AddEngines(const abi::TableSnapshot& table,
                std::vector<EngineSight>* sights) {
  char gpu[41];
  abi::FormatGpuUuid(table.gpu_uuid, gpu);
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state != abi::EngineState::kAlive || engine.uid != geteuid() ||
        engine.member_pids.size() != 1) {
      continue;
    }
    const auto scoreboard =
        abi::FindScoreboard(static_cast<pid_t>(engine.member_pids[0]));
    if (!scoreboard.ok()) continue;
    sights->push_back({engine.name, gpu, scoreboard->frozen_bytes,
                       scoreboard->dropped_bytes, scoreboard->readers,
                       AddressOf(*scoreboard), scoreboard->lender_pid});
  }
}

}  // namespace

abi::ShareAddress AddressOf(const abi::ScoreboardSnapshot& scoreboard) {
  if (scoreboard.share_socket == 0 || scoreboard.frozen_bytes == 0) return {};
  abi::ShareAddress address = {
      abi::ProcessImage(static_cast<pid_t>(scoreboard.pid)),
      scoreboard.pid,
      0,
      {}};
  memcpy(address.socket, &scoreboard.share_socket, sizeof(address.socket));
  return address;
}

std::vector<EngineSight> SeeEngines(const std::string& folder,
                                    absl::Duration patience) {
  std::vector<EngineSight> sights;
  for (const std::string& socket : ListSockets(folder)) {
    const auto link = abi::ConnectObserver(socket, patience);
    if (!link.ok()) continue;
    const auto table = abi::ReadTable(link->table.get());
    if (table.ok()) AddEngines(*table, &sights);
  }
  return sights;
}

}  // namespace fineserve::finding
