#include "daemon/proxy/page/pool_history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/http/api_error.h"

namespace fineserve::proxy {
namespace {

// Returns the history of a new engine, which held 0 bytes at each moment so
// far.
std::deque<uint64_t> Nothing(size_t moments) {
  return std::deque<uint64_t>(moments, 0);
}

void AppendBytes(std::string* out, const absl::optional<uint64_t>& bytes) {
  if (bytes) {
    absl::StrAppend(out, *bytes);
  } else {
    out->append("null");
  }
}

}  // namespace

void PoolHistory::Add(uint64_t now_ns, const std::vector<GpuSight>& sights) {
  Forget(now_ns);
  for (const GpuSight& sight : sights) {
    if (!sight.answers || !sight.table || gpus_.count(sight.name) != 0) {
      continue;
    }
    gpus_[sight.name].present.resize(moments_.size());
  }
  moments_.push_back(now_ns);
  for (auto& [name, gpu] : gpus_) {
    const auto found = std::find_if(
        sights.begin(), sights.end(), [&name = name](const GpuSight& sight) {
          return sight.name == name && sight.answers && sight.table;
        });
    AddTo(&gpu, found == sights.end() ? nullptr : &*found->table);
  }
}

void PoolHistory::Forget(uint64_t now_ns) {
  while (!moments_.empty() && now_ns - moments_.front() > kAgeNs) {
    moments_.pop_front();
    for (auto& [name, gpu] : gpus_) {
      gpu.present.pop_front();
      for (auto& [engine, held] : gpu.engines) held.pop_front();
    }
  }
  for (auto gpu = gpus_.begin(); gpu != gpus_.end();) {
    auto& engines = gpu->second.engines;
    for (auto engine = engines.begin(); engine != engines.end();) {
      const Held& held = engine->second;
      const bool is_past = std::all_of(held.begin(), held.end(),
                                       [](uint64_t n) { return n == 0; });
      engine = is_past ? engines.erase(engine) : std::next(engine);
    }
    const auto& present = gpu->second.present;
    const bool is_past = std::none_of(present.begin(), present.end(),
                                      [](const auto& n) { return n; });
    gpu = is_past ? gpus_.erase(gpu) : std::next(gpu);
  }
}

void PoolHistory::AddTo(Gpu* gpu, const abi::TableSnapshot* table) const {
  gpu->present.push_back(absl::nullopt);
  for (auto& [name, held] : gpu->engines) held.push_back(0);
  if (table == nullptr) return;
  gpu->present.back() = PresentBytes(*table);
  for (const abi::EngineSnapshot& engine : table->engines) {
    const uint64_t bytes = engine.slabs_held * table->slab_bytes();
    if (bytes == 0) continue;
    gpu->engines.try_emplace(engine.name, Nothing(moments_.size()))
        .first->second.back() += bytes;
  }
}

std::string PoolHistory::Text(int64_t zero_ms) const {
  if (gpus_.empty()) return "";
  const auto time = [=](std::string* out, uint64_t ns) {
    absl::StrAppend(out, zero_ms + static_cast<int64_t>(ns / 1'000'000));
  };
  const auto gpu = [](std::string* out, const auto& named) {
    out->append(GpuText(named.first, named.second));
  };
  return absl::StrCat("{\"period_ms\":", kPeriodNs / 1'000'000, ",\"times\":[",
                      absl::StrJoin(moments_, ",", time), "],\"gpus\":[",
                      absl::StrJoin(gpus_, ",", gpu), "]}");
}

std::string PoolHistory::GpuText(const std::string& name, const Gpu& gpu) {
  const auto engine = [](std::string* out, const auto& named) {
    absl::StrAppend(out, "{\"name\":", JsonQuote(named.first), ",\"held\":[",
                    absl::StrJoin(named.second, ","), "]}");
  };
  return absl::StrCat("{\"name\":", JsonQuote(name), ",\"present\":[",
                      absl::StrJoin(gpu.present, ",", AppendBytes),
                      "],\"engines\":[",
                      absl::StrJoin(gpu.engines, ",", engine), "]}");
}

}  // namespace fineserve::proxy
