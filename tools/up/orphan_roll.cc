#include "tools/up/orphan_roll.h"

namespace fineserve::fsctl {

std::string OrphanRoll::Next(const std::vector<Engine>& engines) {
  for (const Engine& engine : engines) {
    // Be it drained for another reason; the last one may not be back yet.
    if (engine.rests) return "";
    if (engine.name == last_ && !engine.serves) return "";
  }
  last_.clear();
  for (const Engine& engine : engines) {
    if (engine.is_orphan && engine.serves) return last_ = engine.name;
  }
  return "";
}

}  // namespace fineserve::fsctl
