#ifndef DAEMON_FINESERVED_STORE_OWN_LINK_H_
#define DAEMON_FINESERVED_STORE_OWN_LINK_H_

#include <deque>
#include <optional>
#include <vector>

#include "daemon/fineserved/store/transfer.h"
#include "kernels/driver/driver.h"

namespace fineserve::store {

// This GPU's own link to the host: copies in a stream. The stream's context
// must be current in each call and in the destructor.
class OwnLink : public Link {
 public:
  OwnLink(const driver::Driver& driver, driver::CUstream stream)
      : driver_(driver), stream_(stream) {}
  OwnLink(const OwnLink&) = delete;
  OwnLink& operator=(const OwnLink&) = delete;
  ~OwnLink() override;

  // A piece without `whole` gets no answer.
  bool Carry(const Piece& piece) override;
  std::optional<Answer> Take() override;
  int descriptor() const override { return -1; }

 private:
  const driver::Driver driver_;
  const driver::CUstream stream_;
  std::deque<driver::CUevent> under_way_;  // after each piece
  std::vector<driver::CUevent> spare_;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_OWN_LINK_H_
