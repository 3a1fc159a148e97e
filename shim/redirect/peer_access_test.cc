// Tests which other devices get access to redirected memory.

#include "shim/redirect/peer_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/redirect/redirector_fixture.h"

namespace fineserve::shim {
namespace {

using driver::CU_MEM_ACCESS_FLAGS_PROT_NONE;
using driver::CU_MEM_ACCESS_FLAGS_PROT_READ;
using driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
using driver::CUdeviceptr;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr driver::CUdevice kPeer = 1;

class PeerAccessTest : public RedirectorTest {
 protected:
  void SetUp() override {
    RedirectorTest::SetUp();
    StartDaemon();
    fake_.devices = 3;
  }
  driver::CUcontext first() {
    return reinterpret_cast<driver::CUcontext>(&fake_);
  }
  // As a thread of the peer does.
  void SetEnabled(bool enabled, driver::CUcontext of) {
    fake_.current_device = kPeer;
    if (enabled) {
      redirector_.peers().Enable(driver_, of);
    } else {
      redirector_.peers().Disable(driver_, of);
    }
    fake_.current_device = 0;
  }
  CUdeviceptr NewKv(MemoryKind kind = MemoryKind::kPlain) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Allocate(kSlabBytes, true, &address, kind), driver::CUDA_SUCCESS);
    return address;
  }
};

TEST_F(PeerAccessTest, KvIsOpenToThePeersOfItsContext) {
  const CUdeviceptr before = NewKv();
  EXPECT_THAT(fake_.peers, IsEmpty());
  SetEnabled(true, first());
  const CUdeviceptr after = NewKv();
  EXPECT_THAT(
      fake_.peers,
      ElementsAre(
          Pair(Pair(before, kPeer), CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
          Pair(Pair(after, kPeer), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)));
  SetEnabled(false, first());
  const CUdeviceptr last = NewKv();
  EXPECT_EQ((fake_.peers[{before, kPeer}]), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ((fake_.peers[{after, kPeer}]), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(fake_.peers.count({last, kPeer}), 0u);
}

TEST_F(PeerAccessTest, KvOfAnotherContextStaysClosed) {
  int other = 0;
  const CUdeviceptr before = NewKv();
  SetEnabled(true, reinterpret_cast<driver::CUcontext>(&other));
  NewKv();
  EXPECT_THAT(fake_.peers, IsEmpty());
  fake_.pushed = {reinterpret_cast<driver::CUcontext>(&other)};
  NewKv();
  EXPECT_EQ(fake_.peers.size(), 1u);
  EXPECT_EQ(fake_.peers.count({before, kPeer}), 0u);
}

TEST_F(PeerAccessTest, KvOfAPoolIsOpenAsThePoolIs) {
  fake_.pool_peers[kPeer] = CU_MEM_ACCESS_FLAGS_PROT_READ;
  const CUdeviceptr plain = NewKv();
  const CUdeviceptr pooled = NewKv(MemoryKind::kStreamOrdered);
  EXPECT_THAT(fake_.peers, ElementsAre(Pair(Pair(pooled, kPeer),
                                            CU_MEM_ACCESS_FLAGS_PROT_READ)));
  SetEnabled(true, first());
  EXPECT_EQ((fake_.peers[{pooled, kPeer}]), CU_MEM_ACCESS_FLAGS_PROT_READ)
      << "its pool alone counts";
  const driver::CUmemAccessDesc none = {
      {driver::CU_MEM_LOCATION_TYPE_DEVICE, kPeer},
      CU_MEM_ACCESS_FLAGS_PROT_NONE};
  redirector_.peers().SetPool(
      driver_, reinterpret_cast<driver::CUmemoryPool>(&fake_), &none, 1);
  EXPECT_EQ((fake_.peers[{pooled, kPeer}]), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ((fake_.peers[{plain, kPeer}]), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_F(PeerAccessTest, KvThatCannotBeOpenedStaysTheDrivers) {
  SetEnabled(true, first());
  fake_.fail = "cuMemSetAccess";
  fake_.fail_after = 1;  // it is open to its own device
  EXPECT_EQ(NewKv(), kDriversOwn);
  EXPECT_EQ(LastDecision().reason, abi::Reason::kDriverError);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
}

TEST_F(PeerAccessTest, ContextThatGetsTheHandleOfAnotherHasNoPeers) {
  SetEnabled(true, first());
  const auto destroy = [](const driver::EntryPoints&) {
    return driver::CUDA_SUCCESS;
  };
  redirector_.releaser().DestroyContext(driver_, abi::Hook::kCtxDestroy,
                                        first(), Original(destroy));
  NewKv();
  EXPECT_THAT(fake_.peers, IsEmpty());
}

}  // namespace
}  // namespace fineserve::shim
