#include "shim/ranks/rank.h"

#include <string.h>
#include <unistd.h>

#include "shim/view/kv_error.h"

namespace fineserve::shim {

using abi::LinkState;
using Hold = ViewLeases::Hold;

int Rank::Join(const fs_kv_rank& rank) {
  char name[abi::kNameBytes];
  memcpy(name, rank.engine_name, sizeof(name));
  name[sizeof(name) - 1] = '\0';
  link_.set_engine_name(name);
  pid_ = rank.pid;
  const LinkState joined = link_.Join(rank.gpu_uuid, /*reconnect=*/true);
  if (joined != LinkState::kConnected) {
    Why why;
    link_.CopyReason(why);
    return KvError(joined == LinkState::kRefused ? FS_REFUSED : FS_NO_DAEMON,
                   "no daemon serves a GPU of this engine: %s", why);
  }
  return TakePool();
}

int Rank::TakePool() {
  Why why;
  const Exchange outcome = link_.RunPool(&run_, why);
  if (outcome != Exchange::kOk) {
    return KvError(outcome == Exchange::kLost ? FS_NO_DAEMON : FS_REFUSED,
                   "cannot run the block pool of pid %u: %s", pid_, why);
  }
  connection_.store(link_.connections());
  if (!shown_.Adopt(run_.scoreboard, run_.epoch, run_.engine_id,
                    answer().slab_count) ||
      !leases_.Open(run_.table, run_.table_bytes, answer().engine_slot,
                    run_.engine_id, answer().slabs)) {
    return KvError(FS_REFUSED, "the daemon's slab table is not usable");
  }
  return FS_OK;
}

void Rank::Suspend() {
  leases_.Close();
  shown_.Close();
}

int Rank::Resume() {
  link_.Look();
  link_.Rejoin();
  want_sent_ = UINT32_MAX;
  return TakePool();
}

void Rank::SendReturns() {
  if (connection_sent_on_ != connection_.load()) {
    // Messages sent on the former connection may never have been read.
    connection_sent_on_ = connection_.load();
    leases_.SendAgain();
    want_sent_ = UINT32_MAX;
  }
  for (uint32_t v = 0; leases_.count(Hold::kDone) > 0;) {
    auto notice = abi::MakeMessage<abi::ReturnNotice>(0);
    while (notice.count < abi::kReturnNoticeCapacity &&
           (v = leases_.Next(Hold::kDone, v)) != 0) {
      notice.entries[notice.count++] = {v - 1, leases_.lease(v)};
    }
    if (notice.count == 0 ||
        link_.TellReturn(run_.epoch, notice) != Notice::kSent) {
      return;
    }
    for (uint32_t i = 0; i < notice.count; ++i) {
      leases_.MarkSent(notice.entries[i].slab + 1);
    }
    returned_slabs_ += notice.count;
    if (v == 0) return;
  }
}

void Rank::SendWant(uint32_t slabs, bool again) {
  if (connection_.load() != link_.connections()) return;
  if (slabs == want_sent_ && !again) return;
  if (link_.TellWant(run_.epoch, slabs) == Notice::kSent) want_sent_ = slabs;
}

// Connects again. On a new connection to the same daemon, the daemon still
// knows the view and the leases, but must learn which process runs the pool.
void Rank::Rejoin() {
  link_.Look();
  link_.Rejoin();
  if (!joined() || connection_.load() == link_.connections()) return;
  const uint32_t connection = link_.connections();
  PoolRun again;
  Why why;
  if (link_.RunPool(&again, why) != Exchange::kOk) return;
  close(again.scoreboard);  // it is the one that we have
  connection_.store(connection);
}

}  // namespace fineserve::shim
