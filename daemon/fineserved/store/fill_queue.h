#ifndef DAEMON_FINESERVED_STORE_FILL_QUEUE_H_
#define DAEMON_FINESERVED_STORE_FILL_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/store/transfer.h"

namespace fineserve::store {

// The pieces that wait to be copied to this GPU, and the pieces that its own
// link and other GPUs' links are copying. Each link takes the next piece when
// it has finished one, so a fast link copies more pieces. Not thread-safe.
class FillQueue {
 public:
  // Time that another GPU's daemon may take for one piece.
  static constexpr uint64_t kPatienceNs = 5'000'000'000;

  // The clock must outlive this object.
  FillQueue(std::unique_ptr<Link> own, const Clock* clock);

  // Replaces the other GPUs' links, unless they have pieces.
  void SetOthers(std::vector<std::unique_ptr<Link>> others);
  bool has_others() const { return links_.size() > 1; }

  // Adds a piece. A piece without `whole` is begun at once and not waited for:
  // it ends with this GPU's stream.
  void Add(Piece piece);
  // Waits until the links have done the holder's pieces. After an error some of
  // its memory may still be written to.
  absl::Status Finish(HolderId holder);
  // Drops the holder's waiting pieces, and waits until no other link copies for
  // the holder: each link keeps alive the memory that it writes to. (A hanging
  // daemon also keeps that memory alive, and is not waited for beyond a limit.)
  void Drop(HolderId holder);
  // Gives the links further pieces. Call it often while something waits.
  void Pump();
  bool has_waiting() const { return !queued_.empty(); }
  // Uses only this GPU's own link from now on. Pieces that others are copying
  // are lost.
  void DropOthers();

  uint64_t own_bytes() const { return own_bytes_; }
  uint64_t others_bytes() const { return others_bytes_; }

 private:
  struct Use {
    std::unique_ptr<Link> link;
    std::deque<Piece> under_way = {};  // without `whole` once it was dropped
    uint64_t since_ns = 0;             // the first of them is waited for
    uint64_t rests_until_ns = 0;       // it has refused
    size_t depth = 1;  // pieces at a time; of others more once one has arrived
  };
  Use& own() { return links_[0]; }
  void Forget(HolderId holder);
  bool OthersCopyFor(HolderId holder) const;
  void TakeOwnAnswers();
  void TakeAnswers(size_t link);
  void Begin(Use* use, Piece piece);
  Use* FreeLink();
  bool Has(HolderId holder) const;
  void Fail(HolderId holder);
  void Lose(size_t link);
  void LoseSilent();
  void Wait() const;

  std::vector<Use> links_;  // this GPU's own is the first
  std::deque<Piece> queued_;
  std::map<HolderId, absl::Status> failed_;
  const Clock* const clock_;
  uint64_t own_bytes_ = 0;
  uint64_t others_bytes_ = 0;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_FILL_QUEUE_H_
