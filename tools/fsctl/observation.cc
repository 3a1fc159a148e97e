#include "tools/fsctl/observation.h"

#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/abi/holders.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/explain.h"

namespace fineserve::fsctl {
namespace {

using ViewPage = absl::StatusOr<abi::ViewPageSnapshot>;

ViewPage ReadViewPageAt(const std::string& path) {
  const driver::Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return absl::NotFoundError(absl::StrCat(path, " is gone"));
  return abi::ReadViewPage(fd.get());
}

bool IsPageOf(const abi::ViewPageSnapshot& page,
              const abi::EngineSnapshot& engine, uint64_t epoch) {
  return page.pid == engine.view.pid && page.engine_id == engine.id &&
         page.epoch == epoch;
}

// Among those that `holder` has open; a daemon has its engines' all.
ViewPage FindAmong(pid_t holder, const abi::EngineSnapshot& engine,
                   uint64_t epoch) {
  absl::Status trouble = absl::NotFoundError(
      absl::StrCat("pid ", engine.view.pid, " holds no view page"));
  for (const abi::Holder& held : abi::FindHolders(holder)) {
    if (held.kind != abi::Holder::Kind::kView) continue;
    ViewPage page = ReadViewPageAt(held.path);
    if (page.ok() && IsPageOf(*page, engine, epoch)) return page;
    if (!page.ok()) trouble = page.status();
  }
  return trouble;
}

}  // namespace

ViewPage FindViewPage(const abi::EngineSnapshot& engine, uint64_t epoch,
                      uint32_t daemon_pid) {
  const auto pid = static_cast<pid_t>(engine.view.pid);
  const absl::Status process = CheckProcess(pid);
  if (absl::IsNotFound(process)) {
    return absl::NotFoundError(absl::StrCat("pid ", pid, " is gone"));
  }
  if (!process.ok()) return process;
  ViewPage page = FindAmong(pid, engine, epoch);
  if (page.ok()) return page;
  ViewPage through_daemon =
      FindAmong(static_cast<pid_t>(daemon_pid), engine, epoch);
  return through_daemon.ok() ? through_daemon : page;
}

absl::StatusOr<Observation> Observe(const std::string& gpu) {
  absl::StatusOr<Pool> pool = ChoosePool(gpu);
  if (!pool.ok()) return pool.status();
  Observation seen;
  seen.pool = *std::move(pool);
  const abi::TableSnapshot& table = seen.pool.table;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.view.mode == abi::ViewMode::kNone) continue;
    seen.view_pages.emplace(
        engine.id, FindViewPage(engine, table.epoch, table.daemon_pid));
  }
  seen.at = Now();
  return seen;
}

}  // namespace fineserve::fsctl
