#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/status/troubles.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

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

// Returns the number of members of the pools, regardless of which program
// started them.
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

std::string StatusText(const StatusInput& o, const Findings& troubles,
                       bool color) {
  return absl::StrCat(
      TroublesText(troubles, color),
      AnyWrong(troubles) ? "" : Paint(color, Color::kGreen, "All is well: "),
      WhatRuns(o));
}

std::string StatusJson(const StatusInput& o, const Findings& troubles) {
  return JsonText({{"well", !AnyWrong(troubles)},
                   {"troubles", TroublesJson(troubles, o.now)},
                   {"daemons", o.pools.size()},
                   {"proxies", Count(o, "fineserve-proxy")},
                   {"ups", Count(o, "fsctl up")},
                   {"engines_serving", Serving(o)}});
}

}  // namespace fineserve::fsctl
