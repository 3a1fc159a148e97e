#include "tools/fsctl/plan/steer.h"

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {

std::vector<std::string> FlagsOf(const SteerOptions& options) {
  std::vector<std::string> flags;
  if (options.freeze) flags.push_back("--freeze");
  if (options.thaw) flags.push_back("--thaw");
  if (options.apply) flags.push_back("--apply");
  if (!options.pin.empty()) flags.push_back("--pin");
  if (!options.unpin.empty()) flags.push_back("--unpin");
  return flags;
}

absl::StatusOr<wire::SteerT> SteerOf(const SteerOptions& options) {
  wire::SteerT steer;
  steer.freeze = options.freeze;
  steer.thaw = options.thaw;
  steer.apply = options.apply;
  steer.unpin = options.unpin;
  if (options.pin.empty()) return steer;
  // A model's name may contain the sign; a GPU's does not.
  const size_t sign = options.pin.rfind('=');
  if (sign == std::string::npos || sign == 0 ||
      sign + 1 == options.pin.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pin ", options.pin,
                     ": write MODEL=GPU, such as --pin chat=GPU-8f0c3f1e"));
  }
  steer.pin = options.pin.substr(0, sign);
  steer.gpu = options.pin.substr(sign + 1);
  return steer;
}

std::string SteeredText(const wire::SteerT& steer) {
  if (steer.freeze) return "frozen: no model moves until fsctl plan --thaw\n";
  if (steer.thaw) return "no longer frozen: models may move\n";
  if (steer.apply) {
    return "the leader makes the best plan's moves, one at a time; watch them "
           "with fsctl plan\n";
  }
  if (!steer.pin.empty()) {
    return absl::StrCat(steer.pin, ": stays on ", steer.gpu,
                        " until fsctl plan --unpin ", steer.pin, "\n");
  }
  return absl::StrCat(steer.unpin, ": no longer pinned, may move\n");
}

}  // namespace fineserve::fsctl
