#include "tools/lab/device/nccl/collectives.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "tools/lab/device/nccl/exchange.h"

namespace fineserve::nccl {
namespace {

using Parts = std::vector<const char*>;

// True if the data that is sent has a part for each rank. Then a buffer has
// those parts, too, and a step moves a piece of each.
bool SendsParts(TaskKind kind) {
  return kind == TaskKind::kReduceScatter || kind == TaskKind::kAlltoAll ||
         kind == TaskKind::kScatter;
}

// The piece that one step moves: elements [first, first + count) of each part.
class Piece {
 public:
  Piece(const Communicator& communicator, const Task& task, size_t first,
        size_t count)
      : ranks_(communicator.ranks()),
        rank_(communicator.rank()),
        task_(task),
        part_bytes_(task.bytes()),
        offset_(first * BytesOf(task.type)),
        count_(count),
        bytes_(count * BytesOf(task.type)) {}

  void Write(char* own) const {
    const bool from_root_only =
        task_.kind == TaskKind::kBroadcast || task_.kind == TaskKind::kScatter;
    if (from_root_only && rank_ != task_.root) return;
    const int parts = SendsParts(task_.kind) ? ranks_ : 1;
    for (int part = 0; part < parts; ++part) {
      WritePart(task_.send + part * part_bytes_ + offset_, own + part * bytes_);
    }
  }

  void Read(const Parts& parts) const {
    switch (task_.kind) {
      case TaskKind::kAllReduce:
        return ReducePart(parts, 0);
      case TaskKind::kReduce:
        return rank_ == task_.root ? ReducePart(parts, 0) : void();
      case TaskKind::kReduceScatter:
        return ReducePart(parts, rank_);
      case TaskKind::kBroadcast:
        return ReadPart(parts[Index(task_.root)], 0);
      case TaskKind::kScatter:
        return ReadPart(parts[Index(task_.root)] + rank_ * bytes_, 0);
      case TaskKind::kAllGather:
        return ReadAll(parts, 0);
      case TaskKind::kGather:
        return rank_ == task_.root ? ReadAll(parts, 0) : void();
      case TaskKind::kAlltoAll:
        return ReadAll(parts, rank_);
      default:
        return;  // transfers and splits are no collectives of streams
    }
  }

 private:
  static size_t Index(int rank) { return static_cast<size_t>(rank); }

  void WritePart(const char* from, char* to) const {
    if (task_.factor) {
      Scale(task_.type, *task_.factor, from, to, count_);
    } else {
      memcpy(to, from, bytes_);
    }
  }
  void ReducePart(const Parts& parts, int part) const {
    Parts mine;
    for (const char* buffer : parts) mine.push_back(buffer + part * bytes_);
    Reduce(task_.type, task_.op, mine, task_.receive + offset_, count_);
  }
  // Copies from a buffer into part `part` of the result.
  void ReadPart(const char* from, int part) const {
    memcpy(task_.receive + part * part_bytes_ + offset_, from, bytes_);
  }
  void ReadAll(const Parts& parts, int part) const {
    for (int rank = 0; rank < ranks_; ++rank) {
      ReadPart(parts[Index(rank)] + part * bytes_, rank);
    }
  }

  const int ranks_;
  const int rank_;
  const Task& task_;
  const size_t part_bytes_;
  const size_t offset_;
  const size_t count_;
  const size_t bytes_;
};

// A transfer in progress. The counters in shared memory continue from one
// transfer to the next.
class Transfer {
 public:
  Transfer(Communicator& communicator, const Task& task)
      : region_(communicator.region()),
        task_(task),
        sender_(task.kind == TaskKind::kSend ? communicator.rank() : task.root),
        receiver_(task.kind == TaskKind::kSend ? task.root
                                               : communicator.rank()),
        slot_(region_.pair(sender_, receiver_)) {}

  bool done() const { return done_; }
  int peer() const { return task_.root; }
  const Task& task() const { return task_; }
  const std::string& wrong() const { return wrong_; }

  // Moves what can be moved now. Returns true if anything moved.
  bool Advance() { return task_.kind == TaskKind::kSend ? Send() : Receive(); }

 private:
  size_t Next() const {
    return std::min(kPairBufferBytes, task_.bytes() - moved_);
  }

  bool Send() {
    const uint64_t written = slot_.written.load(std::memory_order_relaxed);
    const uint64_t read = slot_.read.load(std::memory_order_acquire);
    if (moved_ == task_.bytes()) {
      done_ = read == written || region_.sends_are_buffered();
      return done_;
    }
    if (read + kPairPieces <= written) return false;
    const uint64_t piece = written + 1;
    const size_t bytes = Next();
    memcpy(region_.PairBuffer(sender_, receiver_, piece), task_.send + moved_,
           bytes);
    slot_.signatures[piece % kPairPieces] = task_.signature();
    moved_ += bytes;
    slot_.written.store(piece, std::memory_order_release);
    region_.Ring();
    return true;
  }

  bool Receive() {
    const uint64_t piece = slot_.read.load(std::memory_order_relaxed) + 1;
    if (slot_.written.load(std::memory_order_acquire) < piece) return false;
    const Signature& sent = slot_.signatures[piece % kPairPieces];
    if (sent != task_.signature()) {
      wrong_ = "it receives " + Describe(task_.signature()) + " while rank " +
               std::to_string(sender_) + " sends " + Describe(sent);
      return true;
    }
    const size_t bytes = Next();
    memcpy(task_.receive + moved_,
           region_.PairBuffer(sender_, receiver_, piece), bytes);
    moved_ += bytes;
    done_ = moved_ == task_.bytes();
    slot_.read.store(piece, std::memory_order_release);
    region_.Ring();
    return true;
  }

  const SharedRegion& region_;
  const Task& task_;
  const int sender_;
  const int receiver_;
  PairSlot& slot_;
  size_t moved_ = 0;
  bool done_ = false;
  std::string wrong_;
};

// The transfers by direction and peer, in the order of the calls.
using Queues = std::map<std::pair<TaskKind, int>, std::deque<Transfer>>;

// Advances the first transfer of each queue, and removes it if it is done.
// Returns true if anything moved, and sets `wrong` if the two ends disagree.
bool AdvanceAll(Queues& queues, std::string* wrong) {
  bool moved = false;
  for (auto next = queues.begin(); next != queues.end();) {
    std::deque<Transfer>& queue = next->second;
    moved = queue.front().Advance() || moved;
    if (!queue.front().wrong().empty()) *wrong = queue.front().wrong();
    if (queue.front().done()) queue.pop_front();
    next = queue.empty() ? queues.erase(next) : std::next(next);
  }
  return moved;
}

bool WaitsForTheGone(const Communicator& communicator, const Queues& queues) {
  for (const auto& [key, queue] : queues) {
    const int peer = key.second;
    if (peer != communicator.rank() && communicator.Gone(peer)) return true;
  }
  return false;
}

}  // namespace

ncclResult_t RunCollective(Communicator& communicator, const Task& task,
                           std::string* what) {
  const size_t parts = SendsParts(task.kind) ? communicator.ranks() : 1;
  const size_t most = kStreamBufferBytes / parts / BytesOf(task.type);
  for (size_t first = 0; first < task.count; first += most) {
    const Piece piece(communicator, task, first,
                      std::min(most, task.count - first));
    const ncclResult_t result =
        Take(communicator, Lane::kStream,
             {.signature = task.signature(),
              .write = [&](char* own) { piece.Write(own); },
              .read = [&](const Parts& all) { piece.Read(all); }},
             what);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t RunTransfers(Communicator& communicator,
                          const std::vector<Task>& tasks, std::string* what) {
  Queues queues;
  for (const Task& task : tasks) {
    queues[{task.kind, task.root}].emplace_back(communicator, task);
  }
  bool peer_gone = false;
  const Waited waited = communicator.AwaitProgress([&] {
    while (!queues.empty() && what->empty() && AdvanceAll(queues, what)) {
    }
    if (queues.empty() || !what->empty()) return true;
    // The peer's last writes may have become visible only now.
    peer_gone = WaitsForTheGone(communicator, queues) &&
                !AdvanceAll(queues, what) && what->empty();
    return peer_gone || queues.empty() || !what->empty();
  });
  if (waited == Waited::kReleased) {
    *what = "the communicator was aborted";
    return ncclInternalError;
  }
  if (!peer_gone) return what->empty() ? ncclSuccess : ncclInvalidUsage;
  *what = "the other end of a Send or Recv ended or left";
  return ncclRemoteError;
}

}  // namespace fineserve::nccl
