#include "tools/fsctl/status/status_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

std::string Since(double seconds) {
  if (seconds < 0) return "";
  const uint64_t now_ns = 1ull << 62;
  return absl::StrCat(
      " (since ", Age(now_ns, now_ns - static_cast<uint64_t>(seconds * 1e9)),
      ")");
}

// As in logs.
std::string TimeText(const Moment& now, double seconds_ago) {
  return absl::FormatTime(
      "%Y-%m-%dT%H:%M:%E3SZ",
      absl::FromUnixNanos(static_cast<int64_t>(now.realtime_ns)) -
          absl::Seconds(seconds_ago),
      absl::UTCTimeZone());
}

size_t Count(const StatusInput& o, const char* program) {
  return std::count_if(o.found.processes.begin(), o.found.processes.end(),
                       [&](const FleetProcess& process) {
                         return process.state.process == program;
                       });
}

size_t Serving(const StatusInput& o) {
  size_t serving = 0;
  for (const FleetProcess& process : o.found.processes) {
    for (const apply::EngineState& engine : process.state.engines) {
      serving += engine.state == "serving";
    }
  }
  return serving;
}

std::string Several(size_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

// In the pools, by whatever they are started.
size_t Members(const StatusInput& o) {
  size_t members = 0;
  for (const LivePool& pool : o.pools) {
    members +=
        std::count_if(pool.table.engines.begin(), pool.table.engines.end(),
                      [](const abi::EngineSnapshot& engine) {
                        return engine.state == abi::EngineState::kAlive;
                      });
  }
  return members;
}

std::string WhatRuns(const StatusInput& o) {
  const size_t members = Members(o);
  const size_t starters = Count(o, "fsctl up");
  return absl::StrCat(
      Several(o.pools.size(), "daemon", "daemons"),
      members == 0 ? "" : " with " + Several(members, "engine", "engines"),
      ", ", Several(Count(o, "fineserve-proxy"), "proxy", "proxies"), ", ",
      starters, " fsctl up",
      starters == 0 ? ""
                    : " with " + Several(Serving(o), "engine that serves",
                                         "engines that serve"),
      "\n");
}

}  // namespace

bool AnyWrong(const std::vector<Trouble>& troubles) {
  return std::any_of(troubles.begin(), troubles.end(),
                     [](const Trouble& trouble) { return trouble.is_wrong; });
}

std::string StatusText(const StatusInput& o,
                       const std::vector<Trouble>& troubles, bool color) {
  std::string text;
  for (const Trouble& trouble : troubles) {
    const Color mark = trouble.is_wrong ? Color::kRed : Color::kYellow;
    absl::StrAppend(&text,
                    Paint(color, mark, trouble.is_wrong ? "WRONG " : "note  "),
                    trouble.what, Since(trouble.since_s), "\n      ",
                    Paint(color, Color::kDim, "→ " + trouble.cure), "\n");
  }
  if (!AnyWrong(troubles)) {
    absl::StrAppend(&text, Paint(color, Color::kGreen, "All is well: "));
  }
  return text + WhatRuns(o);
}

std::string StatusJson(const StatusInput& o,
                       const std::vector<Trouble>& troubles) {
  auto listed = nlohmann::ordered_json::array();
  for (const Trouble& trouble : troubles) {
    nlohmann::ordered_json one = {{"wrong", trouble.is_wrong},
                                  {"what", trouble.what},
                                  {"since_s", nullptr},
                                  {"since", nullptr},
                                  {"cure", trouble.cure}};
    if (trouble.since_s >= 0) {
      one["since_s"] = trouble.since_s;
      one["since"] = TimeText(o.now, trouble.since_s);
    }
    listed.push_back(std::move(one));
  }
  return JsonText({{"well", !AnyWrong(troubles)},
                   {"troubles", std::move(listed)},
                   {"daemons", o.pools.size()},
                   {"proxies", Count(o, "fineserve-proxy")},
                   {"ups", Count(o, "fsctl up")},
                   {"engines_serving", Serving(o)}});
}

}  // namespace fineserve::fsctl
