#include "daemon/fineserved/store/fill_queue.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace fineserve::store {
namespace {

// Pieces that a link gets at a time: enough that the link does not idle before
// its answer is noticed, and so few that a slow link has little left when the
// others finish.
constexpr size_t kDepth = 2;
// A link that has refused a piece is busy with its own daemon's work.
constexpr uint64_t kRestNs = 1'000'000'000;

}  // namespace

FillQueue::FillQueue(std::unique_ptr<Link> own, const Clock* clock)
    : clock_(clock) {
  links_.push_back({std::move(own)});
  links_[0].depth = kDepth;
}

void FillQueue::SetOthers(std::vector<std::unique_ptr<Link>> others) {
  for (size_t i = 1; i < links_.size(); ++i) {
    if (!links_[i].under_way.empty()) return;
  }
  links_.resize(1);
  for (std::unique_ptr<Link>& link : others)
    links_.push_back({std::move(link)});
}

void FillQueue::DropOthers() {
  while (has_others()) Lose(links_.size() - 1);
}

void FillQueue::Add(Piece piece) {
  if (failed_.contains(piece.holder)) return;
  if (piece.whole != nullptr) {
    queued_.push_back(std::move(piece));
    Pump();
  } else if (own().link->Carry(piece)) {
    own_bytes_ += piece.bytes;
  } else {
    Fail(piece.holder);
  }
}

absl::Status FillQueue::Finish(HolderId holder) {
  for (;;) {
    Pump();
    const auto failed = failed_.find(holder);
    if (failed != failed_.end()) return failed->second;
    if (!Has(holder)) return absl::OkStatus();
    Wait();
    LoseSilent();
  }
}

void FillQueue::Drop(HolderId holder) {
  Forget(holder);
  while (OthersCopyFor(holder)) {
    Wait();
    LoseSilent();
    for (size_t i = links_.size(); --i > 0;) TakeAnswers(i);
  }
}

void FillQueue::Forget(HolderId holder) {
  std::erase_if(queued_,
                [&](const Piece& piece) { return piece.holder == holder; });
  for (Use& use : links_) {
    for (Piece& piece : use.under_way) {
      if (piece.holder == holder) piece.whole = nullptr;
    }
  }
  failed_.erase(holder);
}

void FillQueue::Pump() {
  TakeOwnAnswers();
  for (size_t i = links_.size(); --i > 0;) TakeAnswers(i);
  while (!queued_.empty()) {
    Use* const use = FreeLink();
    if (use == nullptr) return;
    Piece piece = std::move(queued_.front());
    queued_.pop_front();
    Begin(use, std::move(piece));
  }
}

void FillQueue::TakeOwnAnswers() {
  while (!own().under_way.empty()) {
    const std::optional<Link::Answer> answer = own().link->Take();
    if (!answer) return;
    const Piece piece = std::move(own().under_way.front());
    own().under_way.pop_front();
    if (*answer == Link::Answer::kCarried) {
      own_bytes_ += piece.bytes;
    } else if (piece.whole != nullptr) {
      Fail(piece.holder);
    }
  }
}

void FillQueue::TakeAnswers(size_t link) {
  Use& use = links_[link];
  while (!use.under_way.empty()) {
    const std::optional<Link::Answer> answer = use.link->Take();
    if (!answer) return;
    if (*answer == Link::Answer::kLost) return Lose(link);
    Piece piece = std::move(use.under_way.front());
    use.under_way.pop_front();
    use.since_ns = clock_->NowNs();
    if (*answer == Link::Answer::kCarried) {
      others_bytes_ += piece.bytes;
      use.depth = kDepth;
      continue;
    }
    use.rests_until_ns = use.since_ns + kRestNs;
    if (piece.whole != nullptr) queued_.push_front(std::move(piece));
    if (*answer == Link::Answer::kNever) return Lose(link);
  }
}

void FillQueue::Begin(Use* use, Piece piece) {
  if (use->link->Carry(piece)) {
    if (use->under_way.empty()) use->since_ns = clock_->NowNs();
    use->under_way.push_back(std::move(piece));
    return;
  }
  if (use == &own()) return Fail(piece.holder);
  queued_.push_front(std::move(piece));
  Lose(static_cast<size_t>(use - links_.data()));
}

// The one with the least to do.
FillQueue::Use* FillQueue::FreeLink() {
  Use* best = nullptr;
  for (Use& use : links_) {
    if (use.under_way.size() >= use.depth ||
        use.rests_until_ns > clock_->NowNs()) {
      continue;
    }
    if (best == nullptr || use.under_way.size() < best->under_way.size()) {
      best = &use;
    }
  }
  return best;
}

bool FillQueue::Has(HolderId holder) const {
  const auto is_its = [&](const Piece& piece) {
    return piece.holder == holder && piece.whole != nullptr;
  };
  return std::any_of(queued_.begin(), queued_.end(), is_its) ||
         std::any_of(links_.begin(), links_.end(), [&](const Use& use) {
           return std::any_of(use.under_way.begin(), use.under_way.end(),
                              is_its);
         });
}

bool FillQueue::OthersCopyFor(HolderId holder) const {
  return std::any_of(links_.begin() + 1, links_.end(), [&](const Use& use) {
    return std::any_of(
        use.under_way.begin(), use.under_way.end(),
        [&](const Piece& piece) { return piece.holder == holder; });
  });
}

void FillQueue::Fail(HolderId holder) {
  Forget(holder);
  failed_[holder] =
      absl::UnavailableError("a link to the GPU failed during the copying");
}

void FillQueue::Lose(size_t link) {
  const std::deque<Piece> lost = std::move(links_[link].under_way);
  links_.erase(links_.begin() + static_cast<ptrdiff_t>(link));
  for (const Piece& piece : lost) {
    if (piece.whole != nullptr) Fail(piece.holder);
  }
}

void FillQueue::LoseSilent() {
  for (size_t i = links_.size(); --i > 0;) {
    const Use& use = links_[i];
    if (!use.under_way.empty() &&
        clock_->NowNs() - use.since_ns > kPatienceNs) {
      Lose(i);
    }
  }
}

void FillQueue::Wait() const {
  std::vector<pollfd> answers;
  for (const Use& use : links_) {
    if (!use.under_way.empty() && use.link->descriptor() >= 0) {
      answers.push_back({use.link->descriptor(), POLLIN, 0});
    }
  }
  // This GPU's own link cannot be waited for together with sockets, so the wait
  // is short.
  constexpr timespec kLook = {0, 200'000};
  ppoll(answers.data(), answers.size(), &kLook, nullptr);
}

}  // namespace fineserve::store
