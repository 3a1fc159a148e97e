#include "tools/fsctl/upgrade/adoption.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {
namespace {

using abi::EngineSnapshot;
using abi::SlabState;
using abi::SlabWord;
using abi::TableSnapshot;

bool AnyMemberLives(const EngineSnapshot& engine, const Lives& lives) {
  for (size_t i = 0; i < engine.member_pids.size(); ++i) {
    const uint64_t image =
        i < engine.member_images.size() ? engine.member_images[i] : 0;
    if (lives(engine.member_pids[i], image)) return true;
  }
  return false;
}

const EngineSnapshot* Find(const TableSnapshot& table, uint32_t id) {
  for (const EngineSnapshot& engine : table.engines) {
    if (engine.id == id) return &engine;
  }
  return nullptr;
}

std::string Name(const EngineSnapshot& engine) {
  return absl::StrCat("engine ", engine.id, " (", engine.name, ")");
}

// The living engines by number.
std::map<uint32_t, const EngineSnapshot*> Living(const TableSnapshot& left,
                                                 const Lives& lives) {
  std::map<uint32_t, const EngineSnapshot*> living;
  for (const EngineSnapshot& engine : left.engines) {
    if (engine.state == abi::EngineState::kAlive &&
        AnyMemberLives(engine, lives)) {
      living[engine.id] = &engine;
    }
  }
  return living;
}

void CheckEngine(const EngineSnapshot& engine, const TableSnapshot& found,
                 Adoption* result) {
  const EngineSnapshot* now = Find(found, engine.id);
  if (now == nullptr || now->name != engine.name) {
    result->problems.push_back(
        absl::StrCat(Name(engine), " lives, and the daemon does not know it"));
  } else if (now->state != abi::EngineState::kAlive) {
    result->problems.push_back(
        absl::StrCat(Name(engine), " lives, and the daemon takes it for dead"));
  }
}

// Checks slab `s`, which a living engine held. Returns true if the engine has
// lost it.
bool CheckSlab(const TableSnapshot& left, const TableSnapshot& found, size_t s,
               Adoption* result) {
  const SlabWord before = left.slabs[s].word;
  const SlabWord now = found.slabs[s].word;
  if (now.lease == before.lease && now.engine == before.engine) {
    if (now.state == SlabState::kQuarantined) {
      result->problems.push_back(absl::StrCat(
          "slab ", s, " of living engine ", before.engine, " is quarantined"));
    }
    return false;
  }
  if (now.state == SlabState::kAbsent) {
    result->problems.push_back(absl::StrCat("slab ", s, " of engine ",
                                            before.engine, " has no memory"));
  }
  if (now.engine != 0 && now.lease <= left.last_lease) {
    result->problems.push_back(
        absl::StrCat("slab ", s, " went from engine ", before.engine,
                     " to engine ", now.engine, " without a new lease"));
  }
  return true;
}

}  // namespace

Adoption CompareTables(const TableSnapshot& left, const TableSnapshot& found,
                       const Lives& lives) {
  Adoption result;
  if (found.epoch != left.epoch || found.slabs.size() != left.slabs.size()) {
    result.problems.push_back("the daemon began with a new pool");
    return result;
  }
  const auto living = Living(left, lives);
  result.engines = static_cast<uint32_t>(living.size());
  for (const auto& [id, engine] : living) CheckEngine(*engine, found, &result);
  uint64_t gone_from_views = 0;
  for (size_t s = 0; s < left.slabs.size(); ++s) {
    const SlabWord word = left.slabs[s].word;
    if (word.engine == 0 || living.count(word.engine) == 0) continue;
    ++result.slabs;
    const bool gone = CheckSlab(left, found, s, &result);
    const EngineSnapshot* now = Find(found, word.engine);
    if (gone && abi::IsInView(word) && now != nullptr &&
        now->view.state == abi::ViewState::kActive) {
      ++gone_from_views;
    }
  }
  const uint64_t returned =
      found.counters.slabs_returned -
      std::min(found.counters.slabs_returned, left.counters.slabs_returned);
  if (gone_from_views > returned) {
    result.problems.push_back(
        absl::StrCat(gone_from_views - returned,
                     " slabs were taken from engines that had not returned "
                     "them"));
  }
  return result;
}

}  // namespace fineserve::fsctl
