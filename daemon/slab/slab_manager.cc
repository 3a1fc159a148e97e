#include "daemon/slab/slab_manager.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::slab {

using abi::IsInView;
using abi::SlabState;
using abi::SlabWord;

SlabManager::SlabManager(uint32_t slab_count, uint32_t present)
    : slabs_(slab_count),
      zeroing_count_(present),
      absent_count_(slab_count - present) {
  for (uint32_t i = 0; i < slab_count; ++i) {
    Set(SlabId{i},
        {i < present ? SlabState::kZeroing : SlabState::kAbsent, 0, 0});
  }
}

void SlabManager::CountHolding(SlabWord word, int by) {
  if (word.engine == 0) return;
  const EngineId engine{word.engine};
  Holding& holding = holdings_[engine];
  holding.slabs += by;
  if (IsInView(word)) holding.in_view += by;
  if (word.state == SlabState::kReturning) holding.returning += by;
  if (holding.slabs == 0) holdings_.erase(engine);
}

void SlabManager::Set(SlabId slab, SlabWord word) {
  SlabWord& now = slabs_[Number(slab)];
  // First, so that the entry of an engine that keeps holding slabs survives.
  CountHolding(word, 1);
  CountHolding(now, -1);
  now = word;
  changes_.push_back({slab, word});
}

SlabManager::Outcome SlabManager::Lease(EngineId engine, uint32_t count,
                                        uint64_t ticket, uint32_t obtainable) {
  const uint32_t available = obtainable - std::min(obtainable, promised_);
  if (count > available) return Exhausted{available};
  if (waiting_.empty() && count <= free_count()) {
    return LeaseNow({engine, count, ticket});
  }
  waiting_.push_back({engine, count, ticket});
  promised_ += count;
  return Waiting{};
}

bool SlabManager::Cancel(uint64_t ticket) {
  const auto it =
      std::find_if(waiting_.begin(), waiting_.end(),
                   [&](const Pending& p) { return p.ticket == ticket; });
  if (it == waiting_.end()) return false;
  promised_ -= it->count;
  waiting_.erase(it);
  return true;
}

SlabManager::Grant SlabManager::LeaseNow(const Pending& request) {
  const LeaseId lease{++last_lease_};
  Grant grant{lease, request.engine, request.ticket, {}};
  grant.slabs.reserve(request.count);
  for (uint32_t i = 0; i < request.count; ++i) {
    const SlabId slab = *free_.begin();
    free_.erase(free_.begin());
    Set(slab, {SlabState::kFull, Number(request.engine), Number(lease)});
    grant.slabs.push_back(slab);
  }
  leases_[lease] = {request.engine, grant.slabs};
  return grant;
}

std::vector<SlabManager::Grant> SlabManager::TakeGrants() {
  std::vector<Grant> grants;
  while (!waiting_.empty() && waiting_.front().count <= free_count()) {
    const Pending request = waiting_.front();
    waiting_.pop_front();
    promised_ -= request.count;
    grants.push_back(LeaseNow(request));
  }
  return grants;
}

const std::vector<SlabId>* SlabManager::Find(EngineId engine,
                                             LeaseId lease) const {
  const auto it = leases_.find(lease);
  if (it == leases_.end() || it->second.engine != engine) return nullptr;
  return &it->second.slabs;
}

absl::StatusOr<std::vector<SlabId>> SlabManager::Return(EngineId engine,
                                                        LeaseId lease) {
  const std::vector<SlabId>* held = Find(engine, lease);
  if (held == nullptr || word(held->front()).state != SlabState::kFull) {
    return absl::NotFoundError(absl::StrCat("engine ", Number(engine),
                                            " has no lease ", Number(lease)));
  }
  std::vector<SlabId> slabs = ZeroAll(*held);
  leases_.erase(lease);
  return slabs;
}

absl::optional<SlabId> SlabManager::LeaseForView(EngineId engine,
                                                 SlabId below) {
  const auto end = free_.lower_bound(below);
  if (!waiting_.empty() || end == free_.begin()) return absl::nullopt;
  const SlabId slab = *std::prev(end);
  free_.erase(slab);
  const LeaseId lease{++last_lease_};
  leases_[lease] = {engine, {slab}};
  Set(slab, {SlabState::kPartial, Number(engine), Number(lease)});
  return slab;
}

bool SlabManager::AskBack(SlabId slab) {
  SlabWord word = slabs_[Number(slab)];
  if (word.state != SlabState::kPartial) return false;
  word.state = SlabState::kReturning;
  Set(slab, word);
  return true;
}

absl::Status SlabManager::ReturnSlab(EngineId engine, SlabId slab,
                                     LeaseId lease) {
  const auto it = leases_.find(lease);
  const bool holds = Number(slab) < slabs_.size() && it != leases_.end() &&
                     it->second.engine == engine &&
                     it->second.slabs == std::vector<SlabId>{slab} &&
                     IsInView(word(slab));
  if (!holds) {
    return absl::NotFoundError(
        absl::StrCat("engine ", Number(engine), " has no lease ", Number(lease),
                     " of slab ", Number(slab), " in a view"));
  }
  ZeroAll({slab});
  leases_.erase(it);
  return absl::OkStatus();
}

bool SlabManager::Add(SlabId slab) {
  if (word(slab).state != SlabState::kAbsent) return false;
  --absent_count_;
  ZeroAll({slab});
  return true;
}

bool SlabManager::Withdraw(SlabId slab) {
  if (word(slab).state != SlabState::kFree ||
      promised_ >= free_count() + zeroing_count_) {
    return false;
  }
  free_.erase(slab);
  ++absent_count_;
  Set(slab, {SlabState::kAbsent, 0, 0});
  return true;
}

std::vector<SlabId> SlabManager::ZeroAll(const std::vector<SlabId>& slabs) {
  for (SlabId slab : slabs) Set(slab, {SlabState::kZeroing, 0, 0});
  zeroing_count_ += static_cast<uint32_t>(slabs.size());
  return slabs;
}

std::vector<SlabManager::Grant> SlabManager::Zeroed(SlabId slab) {
  Set(slab, {SlabState::kFree, 0, 0});
  --zeroing_count_;
  free_.insert(slab);
  return TakeGrants();
}

uint32_t SlabManager::Quarantine(EngineId engine) {
  std::deque<Pending> others;
  for (const Pending& request : waiting_) {
    if (request.engine == engine) {
      promised_ -= request.count;
    } else {
      others.push_back(request);
    }
  }
  waiting_ = std::move(others);
  uint32_t count = 0;
  for (const auto& [lease, held] : leases_) {
    if (held.engine != engine) continue;
    for (SlabId slab : held.slabs) {
      Set(slab, {SlabState::kQuarantined, Number(engine), Number(lease)});
      ++count;
    }
  }
  return count;
}

std::vector<SlabId> SlabManager::Release(EngineId engine) {
  std::vector<SlabId> released;
  for (auto it = leases_.begin(); it != leases_.end();) {
    if (it->second.engine != engine) {
      ++it;
      continue;
    }
    const std::vector<SlabId> slabs = ZeroAll(it->second.slabs);
    released.insert(released.end(), slabs.begin(), slabs.end());
    it = leases_.erase(it);
  }
  return released;
}

std::vector<std::pair<SlabId, LeaseId>> SlabManager::InView(
    EngineId engine) const {
  std::vector<std::pair<SlabId, LeaseId>> slabs;
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    if (slabs_[i].engine == Number(engine) && IsInView(slabs_[i])) {
      slabs.emplace_back(SlabId{i}, LeaseId{slabs_[i].lease});
    }
  }
  return slabs;
}

SlabManager::Holding SlabManager::HeldBy(EngineId engine) const {
  const auto it = holdings_.find(engine);
  return it == holdings_.end() ? Holding{} : it->second;
}

namespace {

void Require(bool holds, const std::string& what) {
  if (holds) return;
  fprintf(stderr, "SlabManager invariant broken: %s\n", what.c_str());
  abort();
}

}  // namespace

void SlabManager::CheckInvariants() const {
  std::vector<int> owners(slabs_.size(), 0);
  for (SlabId slab : free_) {
    ++owners[Number(slab)];
    Require(
        slabs_[Number(slab)].state == SlabState::kFree,
        absl::StrCat("slab ", Number(slab), " in the free set is not FREE"));
  }
  for (const auto& [lease, held] : leases_) {
    for (SlabId slab : held.slabs) {
      const SlabWord& word = slabs_[Number(slab)];
      ++owners[Number(slab)];
      Require(word.lease == Number(lease) &&
                  word.engine == Number(held.engine) &&
                  (word.state == SlabState::kFull || IsInView(word) ||
                   word.state == SlabState::kQuarantined),
              absl::StrCat("slab ", Number(slab), " of lease ", Number(lease),
                           " names another owner or state"));
    }
  }
  uint32_t zeroing = 0;
  uint32_t absent = 0;
  std::map<EngineId, Holding> holdings;
  for (size_t i = 0; i < slabs_.size(); ++i) {
    const SlabWord& word = slabs_[i];
    const bool is_zeroing = word.state == SlabState::kZeroing;
    const bool is_absent = word.state == SlabState::kAbsent;
    zeroing += is_zeroing;
    absent += is_absent;
    const int places = owners[i] + is_zeroing + is_absent;
    Require(places == 1,
            absl::StrCat("slab ", i, " is in ", places, " places"));
    if (word.engine == 0) continue;
    Holding& holding = holdings[EngineId{word.engine}];
    ++holding.slabs;
    holding.in_view += IsInView(word);
    holding.returning += word.state == SlabState::kReturning;
  }
  Require(absent == absent_count_, "absent_count");
  Require(holdings.size() == holdings_.size(), "holdings");
  for (const auto& [engine, holding] : holdings) {
    const Holding counted = HeldBy(engine);
    Require(holding.slabs == counted.slabs &&
                holding.in_view == counted.in_view &&
                holding.returning == counted.returning,
            absl::StrCat("holdings of engine ", Number(engine)));
  }
  uint32_t promised = 0;
  for (const Pending& request : waiting_) promised += request.count;
  Require(zeroing == zeroing_count_, "zeroing_count");
  Require(promised == promised_, "promised");
  Require(waiting_.empty() || waiting_.front().count > free_count(),
          "a request waits though it could be granted");
}

}  // namespace fineserve::slab
