#include "daemon/sched/policy/calendar.h"

#include <iterator>

namespace fineserve::sched {

Calendar::Near Calendar::NearOf(Handle handle) const {
  const Waiting& request = pages_[handle].request;
  return {request.deadline, request.id, handle};
}

bool Calendar::IsNear(const Waiting& request) const {
  return far_.empty() || DayOf(request.deadline) < far_.begin()->first;
}

Calendar::Handle Calendar::New(const Waiting& request) {
  if (free_.empty()) {
    pages_.push_back({request, kNone, kNone});
    return static_cast<Handle>(pages_.size() - 1);
  }
  const Handle handle = free_.back();
  free_.pop_back();
  pages_[handle] = {request, kNone, kNone};
  return handle;
}

void Calendar::Link(Handle handle) {
  const auto [day, is_new] =
      far_.try_emplace(DayOf(pages_[handle].request.deadline), handle);
  if (is_new) return;
  pages_[handle].next = day->second;
  pages_[day->second].previous = handle;
  day->second = handle;
}

void Calendar::Unlink(Handle handle) {
  const Page& page = pages_[handle];
  if (page.next != kNone) pages_[page.next].previous = page.previous;
  if (page.previous != kNone) {
    pages_[page.previous].next = page.next;
    return;
  }
  const auto day = far_.find(DayOf(page.request.deadline));
  if (page.next == kNone) {
    far_.erase(day);
  } else {
    day->second = page.next;
  }
}

// Half of the near ones stay, so that as many must go before Refill. So a
// request that comes or goes moves one other, taken all together.
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
    Page& page = pages_[handle];
    near_.insert(NearOf(handle));
    handle = page.next;
    page.previous = page.next = kNone;
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
  if (IsNear(pages_[handle].request)) {
    near_.erase(NearOf(handle));
    if (near_.empty() && !far_.empty()) Refill();
  } else {
    Unlink(handle);
  }
  free_.push_back(handle);
}

}  // namespace fineserve::sched
