#include "tools/lab/device/nccl/group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/lab/device/nccl/device_launch.h"
#include "tools/lab/device/nccl/last_error.h"

namespace fineserve::nccl {
namespace {

// A communicator's part of a group.
struct Part {
  std::shared_ptr<Communicator> communicator;
  std::vector<Task> tasks;
  std::vector<cudaStream_t> streams;  // each once, in the order of the calls
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Communicator>> joining;
};

thread_local Group group;

ncclResult_t Finish(Group finished) {
  ncclResult_t result = finished.error;
  for (const auto& communicator : finished.joining) {
    const ncclResult_t joined = communicator->WaitForAll();
    if (result == ncclSuccess) result = joined;
  }
  for (Part& part : finished.parts) {
    if (result != ncclSuccess) break;
    result = Launch(part.communicator, std::move(part.tasks), part.streams);
  }
  return result;
}

}  // namespace

void StartGroup() { ++group.depth; }

bool InGroup() { return group.depth > 0; }

ncclResult_t EndGroup() {
  if (group.depth == 0) {
    return Refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (--group.depth > 0) return ncclSuccess;
  return Finish(std::exchange(group, Group()));
}

ncclResult_t Note(ncclResult_t result) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
  return result;
}

void AddTask(std::shared_ptr<Communicator> communicator, Task task,
             cudaStream_t stream) {
  auto part = std::find_if(
      group.parts.begin(), group.parts.end(),
      [&](const Part& its) { return its.communicator == communicator; });
  if (part == group.parts.end()) {
    part = group.parts.insert(part, Part{std::move(communicator), {}, {}});
  }
  part->tasks.push_back(task);
  if (std::find(part->streams.begin(), part->streams.end(), stream) ==
      part->streams.end()) {
    part->streams.push_back(stream);
  }
}

void AddJoining(std::shared_ptr<Communicator> communicator) {
  group.joining.push_back(std::move(communicator));
}

}  // namespace fineserve::nccl
