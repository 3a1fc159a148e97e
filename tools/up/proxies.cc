#include "tools/up/proxies.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/fleet/door/door.h"

namespace fineserve::fsctl {
namespace {

// A proxy answers between two of its requests, within a millisecond.
constexpr absl::Duration kPatience = absl::Milliseconds(300);

}  // namespace

AskProxies ProxiesOf(const std::string& folder) {
  return [folder](const apply::Question& question) {
    std::vector<absl::optional<apply::Answer>> answers;
    for (const std::string& door : apply::ListDoors(folder)) {
      if (!apply::IsDoorOf(door, "proxy")) continue;
      absl::StatusOr<apply::Answer> answer =
          apply::AskDoor(door, question, kPatience);
      if (absl::IsNotFound(answer.status())) continue;
      if (answer.ok() && !answer->ok()) continue;  // another fleet's
      answers.push_back(answer.ok() ? absl::make_optional(*std::move(answer))
                                    : absl::nullopt);
    }
    return answers;
  };
}

}  // namespace fineserve::fsctl
