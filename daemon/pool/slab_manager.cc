#include "daemon/pool/slab_manager.h"

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
    : slabs_(slab_count) {
  // The words start as in a new table, before their first change.
  counts_[static_cast<size_t>(SlabState::kFree)] = slab_count;
  for (uint32_t i = 0; i < slab_count; ++i) {
    Set(SlabId{i},
        {i < present ? SlabState::kZeroing : SlabState::kAbsent, 0, 0});
  }
}

SlabManager::SlabManager(const std::vector<SlabWord>& words,
                         const std::vector<abi::LeaseAsker>& askers,
                         uint32_t last_lease)
    : slabs_(words.size()), last_lease_(last_lease) {
  counts_[static_cast<size_t>(SlabState::kFree)] = slab_count();
  for (uint32_t i = 0; i < slab_count(); ++i) {
    Set(SlabId{i}, words[i]);
    const abi::LeaseAsker& asker = askers[i];
    if (words[i].state != SlabState::kFull || asker.request == 0 ||
        asker.lease != words[i].lease) {
      continue;
    }
    unseen_[LeaseId{asker.lease}] = {
        EngineId{words[i].engine},
        {static_cast<pid_t>(asker.pid), asker.request}};
  }
  changes_.clear();
}

void SlabManager::CountHolding(SlabWord word, int by) {
  counts_[static_cast<size_t>(word.state)] += by;
  if (word.engine == 0) return;
  const EngineId engine{word.engine};
  Holding& holding = holdings_[engine];
  holding.slabs += by;
  if (IsInView(word)) holding.in_view += by;
  if (word.state == SlabState::kReturning) holding.returning += by;
  if (holding.slabs == 0) holdings_.erase(engine);
}

void SlabManager::ChangeHolder(SlabId slab, uint32_t before, uint32_t after) {
  if (before == after) return;
  if (before != 0) {
    const auto held = held_.find(EngineId{before});
    std::vector<SlabId>& slabs = held->second;
    slabs.erase(std::lower_bound(slabs.begin(), slabs.end(), slab));
    if (slabs.empty()) held_.erase(held);
  }
  if (after != 0) {
    std::vector<SlabId>& slabs = held_[EngineId{after}];
    slabs.insert(std::lower_bound(slabs.begin(), slabs.end(), slab), slab);
  }
}

void SlabManager::Set(SlabId slab, SlabWord word, const Asker& asker) {
  SlabWord& now = slabs_[Number(slab)];
  // Adds before it subtracts, so that the entry of an engine that still holds
  // slabs survives.
  CountHolding(word, 1);
  CountHolding(now, -1);
  if (now.state == SlabState::kFree) free_.erase(slab);
  if (word.state == SlabState::kFree) free_.insert(slab);
  ChangeHolder(slab, now.engine, word.engine);
  now = word;
  changes_.push_back({slab, word});
  if (asker.request == 0) return;
  changes_.back().asker = {word.lease, static_cast<uint32_t>(asker.pid),
                           asker.request};
}

absl::optional<uint32_t> SlabManager::Lease(const Request& request,
                                            uint32_t obtainable) {
  const uint32_t available =
      obtainable - std::min(obtainable, promised_count());
  if (request.count > available) return available;
  waiting_.push_back(request);
  return absl::nullopt;
}

bool SlabManager::Cancel(uint64_t ticket) {
  return std::erase_if(waiting_, [&](const Request& request) {
           return request.ticket == ticket;
         }) > 0;
}

uint32_t SlabManager::promised_count() const {
  uint32_t promised = 0;
  for (const Request& request : waiting_) promised += request.count;
  return promised;
}

std::vector<SlabManager::Request> SlabManager::TakeLate(uint64_t now_ns,
                                                        uint64_t wait_ns) {
  std::vector<Request> late;
  for (; !waiting_.empty() && now_ns - waiting_.front().since_ns >= wait_ns;
       waiting_.pop_front()) {
    late.push_back(waiting_.front());
  }
  return late;
}

uint32_t SlabManager::PromisedTo(EngineId engine) const {
  uint32_t promised = 0;
  for (const Request& request : waiting_) {
    if (request.engine == engine) promised += request.count;
  }
  return promised;
}

std::vector<SlabManager::Request> SlabManager::TakeBeyond(EngineId engine,
                                                          uint32_t most) {
  std::vector<Request> beyond;
  std::erase_if(waiting_, [&](const Request& request) {
    if (request.engine != engine) return false;
    if (request.count > most) {
      beyond.push_back(request);
      return true;
    }
    most -= request.count;
    return false;
  });
  return beyond;
}

SlabManager::Grant SlabManager::LeaseNow(const Request& request) {
  Grant grant{LeaseId{++last_lease_}, request.engine, request.ticket, {}};
  while (grant.slabs.size() < request.count) {
    const SlabId slab = *free_.begin();
    Set(slab, {SlabState::kFull, Number(request.engine), Number(grant.lease)},
        request.asker);
    grant.slabs.push_back(slab);
  }
  if (request.asker.request != 0) {
    unseen_[grant.lease] = {request.engine, request.asker};
  }
  return grant;
}

absl::optional<SlabManager::Grant> SlabManager::FindUnseen(
    EngineId engine, const Asker& asker) const {
  for (const auto& [lease, unseen] : unseen_) {
    if (unseen.engine != engine || !(unseen.asker == asker)) continue;
    return Grant{lease, engine, 0, SlabsOf(engine, lease)};
  }
  return absl::nullopt;
}

std::vector<LeaseId> SlabManager::UnseenOf(EngineId engine, pid_t pid) const {
  std::vector<LeaseId> leases;
  for (const auto& [lease, unseen] : unseen_) {
    if (unseen.engine == engine && unseen.asker.pid == pid) {
      leases.push_back(lease);
    }
  }
  return leases;
}

void SlabManager::Seen(EngineId engine, LeaseId lease) {
  const auto it = unseen_.find(lease);
  if (it == unseen_.end() || it->second.engine != engine) return;
  unseen_.erase(it);
  for (SlabId slab : SlabsOf(engine, lease)) {
    changes_.push_back({slab, word(slab)});
  }
}

std::vector<SlabManager::Grant> SlabManager::TakeGrants() {
  std::vector<Grant> grants;
  for (; !waiting_.empty() && waiting_.front().count <= free_count();
       waiting_.pop_front()) {
    grants.push_back(LeaseNow(waiting_.front()));
  }
  return grants;
}

std::vector<SlabId> SlabManager::SlabsOf(EngineId engine, LeaseId lease) const {
  std::vector<SlabId> slabs;
  for (const SlabId slab : SlabsHeldBy(engine)) {
    if (word(slab).lease == Number(lease)) slabs.push_back(slab);
  }
  return slabs;
}

absl::StatusOr<std::vector<SlabId>> SlabManager::Return(EngineId engine,
                                                        LeaseId lease) {
  std::vector<SlabId> slabs = SlabsOf(engine, lease);
  if (slabs.empty() || word(slabs[0]).state != SlabState::kFull) {
    return absl::NotFoundError(absl::StrCat("engine ", Number(engine),
                                            " has no lease ", Number(lease)));
  }
  for (SlabId slab : slabs) Set(slab, {SlabState::kZeroing, 0, 0});
  unseen_.erase(lease);
  return slabs;
}

absl::optional<SlabId> SlabManager::LeaseForView(EngineId engine,
                                                 SlabId below) {
  const auto end = free_.lower_bound(below);
  if (!waiting_.empty() || end == free_.begin()) return absl::nullopt;
  const SlabId slab = *std::prev(end);
  Set(slab, {SlabState::kPartial, Number(engine), ++last_lease_});
  return slab;
}

bool SlabManager::LeaseSlabForView(EngineId engine, SlabId slab) {
  if (!waiting_.empty() || free_.count(slab) == 0) return false;
  Set(slab, {SlabState::kPartial, Number(engine), ++last_lease_});
  return true;
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
  if (Number(slab) >= slabs_.size() || !IsInView(word(slab)) ||
      word(slab).engine != Number(engine) ||
      word(slab).lease != Number(lease)) {
    return absl::NotFoundError(
        absl::StrCat("engine ", Number(engine), " has no lease ", Number(lease),
                     " of slab ", Number(slab), " in a view"));
  }
  Set(slab, {SlabState::kZeroing, 0, 0});
  return absl::OkStatus();
}

bool SlabManager::Add(SlabId slab) {
  if (word(slab).state != SlabState::kAbsent) return false;
  Set(slab, {SlabState::kZeroing, 0, 0});
  return true;
}

bool SlabManager::Withdraw(SlabId slab) {
  if (word(slab).state != SlabState::kFree ||
      promised_count() >= free_count() + zeroing_count()) {
    return false;
  }
  Set(slab, {SlabState::kAbsent, 0, 0});
  return true;
}

void SlabManager::Discard(SlabId slab) {
  Set(slab, {SlabState::kAbsent, 0, 0});
}

void SlabManager::Zeroed(SlabId slab) { Set(slab, {SlabState::kFree, 0, 0}); }

uint32_t SlabManager::Quarantine(EngineId engine) {
  std::erase_if(waiting_, [&](const Request& request) {
    return request.engine == engine;
  });
  std::erase_if(unseen_, [&](const auto& entry) {
    return entry.second.engine == engine;
  });
  const std::vector<SlabId> held = SlabsHeldBy(engine);
  for (const SlabId slab : held) {
    Set(slab, {SlabState::kQuarantined, Number(engine), word(slab).lease});
  }
  return static_cast<uint32_t>(held.size());
}

void SlabManager::QuarantineZeroing(EngineId engine) {
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    if (slabs_[i].state != SlabState::kZeroing) continue;
    Set(SlabId{i}, {SlabState::kQuarantined, Number(engine), ++last_lease_});
  }
}

std::vector<SlabId> SlabManager::Release(EngineId engine) {
  const std::vector<SlabId> released = SlabsHeldBy(engine);
  for (SlabId slab : released) Set(slab, {SlabState::kZeroing, 0, 0});
  return released;
}

std::vector<std::pair<SlabId, LeaseId>> SlabManager::InView(
    EngineId engine) const {
  std::vector<std::pair<SlabId, LeaseId>> slabs;
  for (const SlabId slab : SlabsHeldBy(engine)) {
    if (!IsInView(word(slab))) continue;
    slabs.emplace_back(slab, LeaseId{word(slab).lease});
  }
  return slabs;
}

const std::vector<SlabId>& SlabManager::SlabsHeldBy(EngineId engine) const {
  static const auto* const none = new std::vector<SlabId>;
  const auto held = held_.find(engine);
  return held == held_.end() ? *none : held->second;
}

SlabManager::Holding SlabManager::HeldBy(EngineId engine) const {
  const auto it = holdings_.find(engine);
  return it == holdings_.end() ? Holding{} : it->second;
}

namespace {

// Ends the process with the text of `what` unless `holds`. Builds the text only
// then, because explorations and the simulator check after every event.
template <typename... Parts>
void Require(bool holds, const Parts&... what) {
  if (holds) return;
  fprintf(stderr, "SlabManager invariant broken: %s\n",
          absl::StrCat(what...).c_str());
  abort();
}

}  // namespace

void SlabManager::CheckInvariants() const {
  std::array<uint32_t, abi::kSlabStateCount> counts = {};
  std::map<EngineId, Holding> holdings;
  std::map<EngineId, std::vector<SlabId>> held_by;
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    const SlabWord& word = slabs_[i];
    ++counts[static_cast<size_t>(word.state)];
    Require((word.state == SlabState::kFree) == (free_.count(SlabId{i}) != 0),
            "slab ", i, " is FREE, or in the free set, but not both");
    const bool held = word.state == SlabState::kFull || IsInView(word) ||
                      word.state == SlabState::kQuarantined;
    Require(held == (word.engine != 0) && held == (word.lease != 0), "slab ", i,
            " names an engine or lease, or lacks one");
    if (!held) continue;
    held_by[EngineId{word.engine}].push_back(SlabId{i});
    Holding& holding = holdings[EngineId{word.engine}];
    ++holding.slabs;
    holding.in_view += IsInView(word);
    holding.returning += word.state == SlabState::kReturning;
  }
  for (const auto& [lease, unseen] : unseen_) {
    Require(!SlabsOf(unseen.engine, lease).empty(), "unseen lease ",
            Number(lease), " has no holder");
  }
  Require(counts == counts_, "counts");
  Require(holdings == holdings_, "holdings");
  Require(held_by == held_, "slabs by holder");
  Require(waiting_.empty() || waiting_.front().count > free_count(),
          "a request waits though it could be granted");
}

}  // namespace fineserve::slab
