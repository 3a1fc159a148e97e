#include "tools/fsctl/pool/former_pools.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {

using Json = nlohmann::ordered_json;

std::string FormerPoolsText(const std::vector<abi::OldPool>& pools) {
  if (pools.empty()) return "";
  return absl::StrCat(abi::Describe(pools),
                      "; it is no part of this pool. fsctl up restarts its own "
                      "engines, one after another; restart the others");
}

Json FormerPoolsJson(const std::vector<abi::OldPool>& pools) {
  Json list = Json::array();
  for (const abi::OldPool& pool : pools) {
    Json processes = Json::array();
    for (const abi::OldPool::Process& process : pool.processes) {
      processes.push_back(
          {{"pid", process.pid},
           {"engine", process.is_member ? Json(process.engine) : Json()},
           {"slabs", process.slabs},
           {"bytes", process.slabs * pool.slab_bytes}});
    }
    list.push_back({{"daemon_pid", pool.daemon_pid},
                    {"slabs", pool.slabs},
                    {"bytes", pool.bytes()},
                    {"processes", processes}});
  }
  return list;
}

}  // namespace fineserve::fsctl
