#ifndef DAEMON_FINESERVED_POOL_SERVICE_POOL_FIXTURE_H_
#define DAEMON_FINESERVED_POOL_SERVICE_POOL_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/fineserved/backing/sim_backing.h"
#include "daemon/fineserved/pool_service/pool_service.h"

namespace fineserve::server {

// The pools of this folder's tests, and the processes that join them.
inline constexpr uint32_t kSlabs = 8;
inline constexpr uid_t kUser = 1000;

// A pool on a simulated device that works at once.
class PoolFixture : public ::testing::Test {
 protected:
  // The first `present` slabs have memory.
  PoolFixture(const slab::PoolGeometry& geometry, uint32_t present)
      : backing_(*backing::SimBacking::Create(geometry, present)),
        table_(*slab::TableWriter::Create(IdentityOf(geometry), &clock_)),
        base_(mmap(nullptr, abi::TableBytes(geometry.slab_count), PROT_READ,
                   MAP_SHARED, table_->descriptor(), 0)),
        pool_(&device_, geometry, present, table_.get(), &clock_) {
    Poll();
  }
  explicit PoolFixture(const slab::PoolGeometry& geometry)
      : PoolFixture(geometry, geometry.slab_count) {}
  void TearDown() override { pool_.slabs().CheckInvariants(); }

  void Poll() { EXPECT_TRUE(pool_.Poll().ok()); }
  slab::EngineId Join(const std::string& name, pid_t pid) {
    return *pool_.Join(name, kUser, pid);
  }

  ManualClock clock_;
  backing::SimBacking backing_;
  std::unique_ptr<slab::TableWriter> table_;
  void* const base_;  // of the table
  backing::InlineQueue device_{&backing_};
  PoolService pool_;

 private:
  static slab::TableIdentity IdentityOf(const slab::PoolGeometry& geometry) {
    slab::TableIdentity identity;
    identity.epoch = 1;
    identity.geometry = geometry;
    return identity;
  }
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_POOL_FIXTURE_H_
