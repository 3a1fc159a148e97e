#include "daemon/fineserved/pool_service/kept_pool.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/pool/pool_state.h"

namespace fineserve::server {
namespace {

constexpr char kGranule[] = "granule.";
constexpr char kScoreboard[] = "view.";
// A change of the table takes some microseconds, so a few checks are enough.
constexpr int kChecks = 10;
constexpr absl::Duration kBetweenChecks = absl::Milliseconds(20);

// Reads the number after the prefix; false if the name is not of this form.
bool Parse(absl::string_view name, absl::string_view prefix, uint32_t* number) {
  return absl::ConsumePrefix(&name, prefix) && absl::SimpleAtoi(name, number);
}

void Sort(holder::DescriptorStore::Named named, KeptPool* pool) {
  for (auto& [name, descriptor] : named) {
    uint32_t number = 0;
    if (Parse(name, kGranule, &number)) {
      pool->granules.emplace(number, std::move(descriptor));
    } else if (Parse(name, kScoreboard, &number)) {
      pool->scoreboards.emplace(slab::EngineId{number}, std::move(descriptor));
    } else if (name == kTableName) {
      pool->table = std::move(descriptor);
    } else if (name == kListenerName) {
      pool->listener = std::move(descriptor);
    }
  }
}

// True if the member lives. One that cannot be watched counts as living unless
// it has ended. A member that now runs another program has ended.
bool Lives(pid_t pid, uint64_t image) {
  if (!abi::OpenPidfd(pid, abi::StartOf(image)).valid()) return errno != ESRCH;
  return image == 0 || abi::IsSameImage(abi::ProcessImage(pid), image);
}

}  // namespace

std::string GranuleName(uint32_t granule) {
  return absl::StrCat(kGranule, granule);
}

std::string ScoreboardName(slab::EngineId engine) {
  return absl::StrCat(kScoreboard, slab::Number(engine));
}

absl::StatusOr<absl::optional<KeptPool>> FindKeptPool(
    holder::DescriptorStore::Named named) {
  if (named.count(kTableName) == 0) {
    for (const auto& [name, descriptor] : named) {
      holder::DescriptorStore::Remove(name);
    }
    return absl::optional<KeptPool>();
  }
  KeptPool pool;
  Sort(std::move(named), &pool);
  absl::StatusOr<abi::TableSnapshot> state = abi::ReadTable(pool.table.get());
  if (!state.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot go on with the pool that the former fineserved has left (",
        std::string(state.status().message()),
        "); install that version again, or stop the engines and then the unit "
        "or fineserved --supervise, to begin with a new pool"));
  }
  pool.state = *std::move(state);
  return absl::optional<KeptPool>(std::move(pool));
}

absl::Status CheckTakeover(const KeptPool& kept) {
  absl::Status last;
  for (int i = 0; i < kChecks; ++i) {
    if (i > 0) absl::SleepFor(kBetweenChecks);
    const absl::StatusOr<abi::TableSnapshot> state =
        abi::ReadTable(kept.table.get());
    last = state.ok() ? slab::PoolState::Adopt(*state, /*now_ns=*/1).status()
                      : state.status();
    if (last.ok()) break;
  }
  return last;
}

std::string LivingMembers(const abi::TableSnapshot& state) {
  std::string text;
  for (const abi::EngineSnapshot& engine : state.engines) {
    if (engine.state != abi::EngineState::kAlive) continue;
    for (size_t i = 0; i < engine.member_pids.size(); ++i) {
      const auto pid = static_cast<pid_t>(engine.member_pids[i]);
      const uint64_t image =
          i < engine.member_images.size() ? engine.member_images[i] : 0;
      if (!Lives(pid, image)) continue;
      absl::StrAppend(&text, text.empty() ? "" : ", ", "engine ", engine.name,
                      " (pid ", pid, ")");
    }
  }
  return text;
}

void Forget(KeptPool* kept) {
  using holder::DescriptorStore;
  DescriptorStore::Remove(kTableName);
  for (const auto& [granule, descriptor] : kept->granules) {
    DescriptorStore::Remove(GranuleName(granule));
  }
  for (const auto& [engine, descriptor] : kept->scoreboards) {
    DescriptorStore::Remove(ScoreboardName(engine));
  }
  kept->table.Reset();
  kept->granules.clear();
  kept->scoreboards.clear();
  kept->is_lost = true;
}

slab::TableIdentity IdentityOf(const abi::TableSnapshot& state) {
  slab::TableIdentity identity;
  identity.epoch = state.epoch;
  identity.flags = state.flags;
  memcpy(identity.gpu_uuid, state.gpu_uuid, sizeof(identity.gpu_uuid));
  identity.gpu_name = state.gpu_name;
  identity.geometry = {state.granule_bytes, state.granules_per_slab,
                       static_cast<uint32_t>(state.slabs.size())};
  return identity;
}

}  // namespace fineserve::server
