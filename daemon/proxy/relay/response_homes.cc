#include "daemon/proxy/relay/response_homes.h"

namespace fineserve::proxy {

void ResponseHomes::Found(absl::string_view id, const std::string& engine) {
  if (id.size() > kMostIdBytes) return;
  const auto [known, is_new] =
      engines_.insert_or_assign(std::string(id), engine);
  if (!is_new) return;
  ids_.push_back(known->first);
  if (ids_.size() <= kMost) return;
  engines_.erase(ids_.front());
  ids_.pop_front();
}

std::string ResponseHomes::EngineOf(absl::string_view id) const {
  const auto found = engines_.find(std::string(id));
  return found == engines_.end() ? "" : found->second;
}

}  // namespace fineserve::proxy
