#include "tools/emucuda/nccl/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tools/emucuda/nccl/exchange.h"

namespace fineserve::nccl {
namespace {

using Parts = std::vector<const char*>;

// True if the data sent has a part for each rank. A buffer then has one too,
// and a step moves a piece of each part.
bool SendsParts(TaskKind kind) {
  return kind == TaskKind::kReduceScatter || kind == TaskKind::kAlltoAll ||
         kind == TaskKind::kScatter;
}

// One step's piece: elements [first, first + count) of each part.
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
  // From a buffer into part `part` of the result.
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

}  // namespace fineserve::nccl
