#ifndef DAEMON_PROXY_REPLICA_CHOICE_TIED_REQUEST_H_
#define DAEMON_PROXY_REPLICA_CHOICE_TIED_REQUEST_H_

#include <cstddef>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/proxy/replica_choice/replica_order.h"

namespace fineserve::proxy {

// One request that several GPUs can take, bound late: it is asked of the best,
// and of the next while those asked before cannot start it or refuse it. It
// waits at all of them; the first to admit it gets it, and the caller withdraws
// it from the others (tied requests: Dean and Barroso, The Tail at Scale). It
// is refused once all have refused.
//
// Only one of the GPUs where the model's memory would have to come back is
// asked: each would bring the model back, and evict others for it, even for a
// request that it refuses. After a refusal by a GPU that has the model, it must
// be one that has nothing to do, so that a model that is overloaded on one GPU
// displaces none on another. A GPU with more trouble than the first
// (Candidate::trouble: the plan keeps requests from it, or its engines or its
// daemon do not answer) is asked only after all others have refused; one whose
// engines do not answer, only if no other gave a reason of its own. Pure; the
// caller tells what happens and asks Next after each event.
class TiedRequest {
 public:
  enum class Answer {
    kWaits,    // it waits there
    kRefused,  // it does not, and cannot
    kNothing,  // it does not, and nothing is said by that: no engine, no daemon
  };

  // `order` has the best candidate first; empty: no GPU can take the request.
  // `charged`: the first one was charged (OrderReplicas).
  TiedRequest(const std::vector<Candidate>& order, bool charged);

  // Returns the place (Candidate::place) to ask now, which then counts as
  // asked.
  absl::optional<size_t> Next();
  // True if another place may be asked while the request waits at this one.
  bool MayAskMore() const;
  // True if `place` was the first to be asked.
  bool IsFirst(size_t place) const { return places_.front().place == place; }
  void Heard(size_t place, Answer answer);
  // Notes that `place`, where the request waited, has no daemon now. It may be
  // asked once more, but after all other places.
  void Lost(size_t place);
  // True if no place is left, so that the request is refused.
  bool over() const;
  // Returns the other places that have the request; each must give it up.
  std::vector<size_t> Others(size_t place) const;
  // The place that was charged with the request, and that the admitting place
  // repays.
  absl::optional<size_t> charged() const { return charged_; }

 private:
  enum class State { kLeft, kAsked, kWaits, kOut };
  struct Place {
    size_t place;
    int trouble;
    bool is_idle;
    State state = State::kLeft;
  };
  bool Any(State state) const;
  bool MayJoin(const Place& p) const;
  bool IsDue(const Place& p) const;

  std::vector<Place> places_;
  absl::optional<size_t> charged_;
  bool has_reason_ = false;  // one gave a reason of its own
  bool calls_back_ = false;  // one where the model was away did
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REPLICA_CHOICE_TIED_REQUEST_H_
