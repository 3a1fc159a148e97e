#ifndef TESTS_INTEGRATION_TOP_VIEW_MEMBER_H_
#define TESTS_INTEGRATION_TOP_VIEW_MEMBER_H_

#include <cstdint>
#include <string>

#include "daemon/abi/messages.h"
#include "daemon/abi/view_scoreboard.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::integration {

// The test's own process as an engine with a view, by the bare protocol: it
// maps no memory and reports about its blocks what the test sets.
class ViewMember {
 public:
  // Joins the daemon at the other end of `socket` as `name`, registers blocks
  // of 16 tokens in one plane and activates, wanting so many slabs. Fails the
  // test if it cannot.
  ViewMember(driver::Descriptor socket, const std::string& name,
             uint64_t page_bytes, uint32_t wanted);
  ViewMember(const ViewMember&) = delete;
  ViewMember& operator=(const ViewMember&) = delete;
  ~ViewMember();

  void SetUsed(uint32_t slab, uint32_t blocks);
  abi::ViewScoreboardHeader* scoreboard() { return scoreboard_; }

 private:
  template <typename Answer, typename Question>
  driver::Descriptor Ask(const Question& question);

  driver::Descriptor socket_;
  driver::Descriptor scoreboard_descriptor_;
  size_t scoreboard_bytes_ = 0;
  abi::ViewScoreboardHeader* scoreboard_ = nullptr;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_TOP_VIEW_MEMBER_H_
