#include "daemon/scheduling/local/policy/calendar.h"

#include <iterator>

namespace fineserve::sched {

Calendar::Near Calendar::NearOf(Handle handle) const {
  const Waiting& request = slots_[handle].request;
  return {request.deadline, request.id, handle};
}

bool Calendar::IsNear(const Waiting& request) const {
  return far_.empty() || DayOf(request.deadline) < far_.begin()->first;
}

Calendar::Handle Calendar::New(const Waiting& request) {
  if (free_.empty()) {
    slots_.push_back({request, kNone, kNone});
    return static_cast<Handle>(slots_.size() - 1);
  }
  const Handle handle = free_.back();
  free_.pop_back();
  slots_[handle] = {request, kNone, kNone};
  return handle;
}

void Calendar::Link(Handle handle) {
  const auto [day, is_new] =
      far_.try_emplace(DayOf(slots_[handle].request.deadline), handle);
  if (is_new) return;
  slots_[handle].next = day->second;
  slots_[day->second].previous = handle;
  day->second = handle;
}

void Calendar::Unlink(Handle handle) {
  const Slot& slot = slots_[handle];
  if (slot.next != kNone) slots_[slot.next].previous = slot.previous;
  if (slot.previous != kNone) {
    slots_[slot.previous].next = slot.next;
    return;
  }
  const auto day = far_.find(DayOf(slot.request.deadline));
  if (slot.next == kNone) {
    far_.erase(day);
  } else {
    day->second = slot.next;
  }
}

// Demotes the last day unless it is too large. Half of the near set stays, so
// that as many requests must leave before Refill. Amortised, a request that
// comes or goes moves one other.
void Calendar::Spill() {
  const Day last = DayOf(std::get<Micros>(*near_.rbegin()));
  auto first = near_.end();
  for (size_t count = 0; DayOf(std::get<Micros>(*std::prev(first))) == last;
       ++count) {
    if (count == kMostNear / 2) return;
    --first;
  }
  for (auto near = first; near != near_.end(); ++near) {
    Link(std::get<Handle>(*near));
  }
  near_.erase(first, near_.end());
}

void Calendar::Refill() {
  Handle handle = far_.begin()->second;
  far_.erase(far_.begin());
  while (handle != kNone) {
    Slot& slot = slots_[handle];
    near_.insert(NearOf(handle));
    handle = slot.next;
    slot.previous = slot.next = kNone;
  }
}

Calendar::Handle Calendar::Add(const Waiting& request) {
  const Handle handle = New(request);
  if (!IsNear(request)) {
    Link(handle);
    return handle;
  }
  near_.insert(NearOf(handle));
  if (near_.size() > kMostNear) Spill();
  return handle;
}

void Calendar::Remove(Handle handle) {
  if (IsNear(slots_[handle].request)) {
    near_.erase(NearOf(handle));
    if (near_.empty() && !far_.empty()) Refill();
  } else {
    Unlink(handle);
  }
  free_.push_back(handle);
}

}  // namespace fineserve::sched
