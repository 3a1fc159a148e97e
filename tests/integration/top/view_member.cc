#include "tests/integration/top/view_member.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "daemon/abi/transport.h"

namespace fineserve::integration {

// The last descriptor of the answer, if it has any.
template <typename Answer, typename Question>
driver::Descriptor ViewMember::Ask(const Question& question) {
  Answer answer;
  abi::Received received;
  EXPECT_EQ(abi::Send(socket_.get(), question), 0);
  EXPECT_EQ(received.ReceiveFrom(socket_.get()), 0);
  EXPECT_TRUE(received.As(&answer)) << "refused";
  const uint32_t count = received.descriptor_count();
  return driver::Descriptor(count == 0 ? -1
                                       : received.TakeDescriptor(count - 1));
}

ViewMember::ViewMember(driver::Descriptor socket, const std::string& name,
                       uint64_t page_bytes, uint32_t wanted)
    : socket_(std::move(socket)) {
  auto hello = abi::MakeMessage<abi::Hello>(1);
  hello.role = abi::Role::kMember;
  hello.pid = static_cast<uint32_t>(getpid());
  abi::CopyText(hello.engine_name, name.c_str());
  Ask<abi::Welcome>(hello);
  auto view = abi::MakeMessage<abi::ViewRequest>(2);
  view.mode = abi::ViewMode::kView;
  view.planes = 1;
  view.page_bytes = page_bytes;
  view.block_tokens = 16;
  scoreboard_descriptor_ = Ask<abi::ViewAnswer>(view);
  struct stat st = {};
  EXPECT_EQ(fstat(scoreboard_descriptor_.get(), &st), 0);
  scoreboard_bytes_ = static_cast<size_t>(st.st_size);
  void* scoreboard = mmap(nullptr, scoreboard_bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED, scoreboard_descriptor_.get(), 0);
  if (scoreboard == MAP_FAILED) abort();
  scoreboard_ = static_cast<abi::ViewScoreboardHeader*>(scoreboard);
  auto activate = abi::MakeMessage<abi::ActivateRequest>(3);
  activate.slabs = scoreboard_->slab_count;
  activate.wanted = wanted;
  Ask<abi::ActivateDone>(activate);
}

ViewMember::~ViewMember() {
  if (scoreboard_ != nullptr) munmap(scoreboard_, scoreboard_bytes_);
}

void ViewMember::SetUsed(uint32_t slab, uint32_t blocks) {
  auto* used = reinterpret_cast<uint32_t*>(scoreboard_ + 1);
  __atomic_store_n(&used[slab + 1], blocks, __ATOMIC_RELAXED);
}

}  // namespace fineserve::integration
