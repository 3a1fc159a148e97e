#include "daemon/abi/old_pool.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/holders.h"
#include "daemon/abi/table_reader.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::abi {
namespace {

absl::optional<TableSnapshot> ReadTable(const std::string& path) {
  const driver::Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return absl::nullopt;
  const absl::StatusOr<TableReader> reader = TableReader::Map(fd.get());
  if (!reader.ok()) return absl::nullopt;
  absl::StatusOr<TableSnapshot> table = reader->Read();
  if (!table.ok()) return absl::nullopt;
  return *std::move(table);
}

std::string DescribeEngine(const TableSnapshot& table, pid_t pid) {
  for (const EngineSnapshot& engine : table.engines) {
    if (std::find(engine.member_pids.begin(), engine.member_pids.end(),
                  static_cast<uint32_t>(pid)) == engine.member_pids.end()) {
      continue;
    }
    return absl::StrCat(" (engine ", engine.name, "): ", engine.slabs_held,
                        " slabs, ",
                        SizeText(engine.slabs_held * table.slab_bytes()));
  }
  return " (not a member: it inherited the descriptors)";
}

}  // namespace

std::string DescribeOldPool(const uint8_t (&gpu_uuid)[16], uint64_t epoch) {
  std::map<uint32_t, std::vector<std::string>> by_daemon;
  for (const Holder& holder : FindHolders()) {
    if (holder.kind != Holder::Kind::kTable || holder.pid == getpid()) {
      continue;
    }
    const absl::optional<TableSnapshot> table = ReadTable(holder.path);
    if (!table.has_value() || table->epoch == epoch ||
        memcmp(table->gpu_uuid, gpu_uuid, 16) != 0) {
      continue;
    }
    by_daemon[table->daemon_pid].push_back(
        absl::StrCat("pid ", holder.pid, DescribeEngine(*table, holder.pid)));
  }
  std::vector<std::string> pools;
  for (const auto& [daemon, holders] : by_daemon) {
    pools.push_back(absl::StrCat("the pool of a former daemon (pid ", daemon,
                                 ") is still held by ",
                                 absl::StrJoin(holders, ", ")));
  }
  return absl::StrJoin(pools, "; ");
}

}  // namespace fineserve::abi
