#include "daemon/slab/slab_manager.h"

#include <stdio.h>
#include <stdlib.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::slab {

using abi::SlabState;
using abi::SlabWord;

SlabManager::SlabManager(uint32_t slab_count, SlabObserver* observer)
    : observer_(observer), slabs_(slab_count) {
  for (uint32_t i = 0; i < slab_count; ++i) {
    Set(SlabId{i}, {SlabState::kZeroing, 0, 0});
  }
  zeroing_count_ = slab_count;
}

void SlabManager::Set(SlabId slab, SlabWord word) {
  slabs_[Number(slab)] = word;
  observer_->OnSlabChange(slab, word);
}

SlabManager::Outcome SlabManager::Request(EngineId engine, uint32_t count,
                                          uint64_t ticket) {
  const uint32_t available = free_count() + zeroing_count_ - promised_;
  if (count > available) return Exhausted{available};
  if (waiting_.empty() && count <= free_count()) {
    return GrantNow({engine, count, ticket});
  }
  waiting_.push_back({engine, count, ticket});
  promised_ += count;
  return Waiting{};
}

SlabManager::Grant SlabManager::GrantNow(const Pending& request) {
  const LeaseId lease{++last_lease_};
  Grant grant{lease, request.engine, request.ticket, {}};
  grant.slabs.reserve(request.count);
  for (uint32_t i = 0; i < request.count; ++i) {
    const SlabId slab = *free_.begin();
    free_.erase(free_.begin());
    // Until formats carve blocks, a lease uses its slabs whole.
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
    grants.push_back(GrantNow(request));
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
  if (held == nullptr) {
    return absl::NotFoundError(absl::StrCat("engine ", Number(engine),
                                            " has no lease ", Number(lease)));
  }
  std::vector<SlabId> slabs = ZeroAll(*held);
  leases_.erase(lease);
  return slabs;
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

std::map<EngineId, uint32_t> SlabManager::Holdings() const {
  std::map<EngineId, uint32_t> holdings;
  for (const auto& [lease, held] : leases_) {
    holdings[held.engine] += static_cast<uint32_t>(held.slabs.size());
  }
  return holdings;
}

uint32_t SlabManager::HeldBy(EngineId engine) const {
  uint32_t count = 0;
  for (const auto& [lease, held] : leases_) {
    if (held.engine == engine) count += held.slabs.size();
  }
  return count;
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
                  (word.state == SlabState::kFull ||
                   word.state == SlabState::kQuarantined),
              absl::StrCat("slab ", Number(slab), " of lease ", Number(lease),
                           " says otherwise"));
    }
  }
  uint32_t zeroing = 0;
  for (size_t i = 0; i < slabs_.size(); ++i) {
    const bool is_zeroing = slabs_[i].state == SlabState::kZeroing;
    zeroing += is_zeroing;
    Require(
        owners[i] + is_zeroing == 1,
        absl::StrCat("slab ", i, " is in ", owners[i] + is_zeroing, " places"));
  }
  uint32_t promised = 0;
  for (const Pending& request : waiting_) promised += request.count;
  Require(zeroing == zeroing_count_, "zeroing_count");
  Require(promised == promised_, "promised");
  Require(promised_ <= free_count() + zeroing_count_,
          "waiting requests exceed what will come");
  Require(waiting_.empty() || waiting_.front().count > free_count(),
          "a request waits though it could be granted");
}

}  // namespace fineserve::slab
