#include "daemon/scheduling/overload/drop_plan.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace fineserve::overload {
namespace {

// Work of a part that has none.
constexpr double kNoWork = 1e-9;

}  // namespace

std::vector<size_t> DropOrder(const std::vector<Part>& parts) {
  std::vector<double> cost;
  for (const Part& part : parts) {
    // A step reads only its tokens' rows of an embedding, next to
    // nothing for each byte that is freed, and none of its work hides them.
    const auto read = static_cast<double>(part.step_bytes);
    const auto freed = static_cast<double>(std::max<uint64_t>(1, part.bytes));
    cost.push_back(read / freed * read / std::max(part.work, kNoWork));
  }
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cost[a] < cost[b]; });
  return order;
}

Lending Lend(const std::vector<Part>& parts, uint64_t a_bytes, uint64_t b_bytes,
             Lending lending) {
  std::vector<bool> dropped(parts.size());
  for (const size_t i : lending.a.dropped) dropped[i] = true;
  for (const size_t i : lending.b.dropped) dropped[i] = true;
  for (const size_t i : DropOrder(parts)) {
    if (dropped[i]) continue;
    const uint64_t a_short = a_bytes - std::min(a_bytes, lending.a.bytes);
    const uint64_t b_short = b_bytes - std::min(b_bytes, lending.b.bytes);
    if (a_short == 0 && b_short == 0) break;
    Lending::Side& side = a_short >= b_short ? lending.a : lending.b;
    side.dropped.push_back(i);
    side.bytes += parts[i].bytes;
  }
  return lending;
}

sched::PeerReads ReadsOf(const Lending::Side& side,
                         const std::vector<Part>& parts,
                         double link_bytes_per_us, double reread) {
  sched::PeerReads reads;
  reads.reread = reread;
  for (const size_t i : side.dropped) {
    reads.link_us +=
        static_cast<double>(parts[i].step_bytes) / link_bytes_per_us;
    reads.work += parts[i].work;
  }
  return reads;
}

MergePlan MergeGroups(std::vector<Group> groups, uint64_t copy_bytes,
                      uint64_t short_bytes) {
  // The smallest first, and of these the one with the most load.
  const auto later = [](const Group& a, const Group& b) {
    if (a.replicas.size() != b.replicas.size())
      return a.replicas.size() > b.replicas.size();
    return a.load < b.load;
  };
  std::priority_queue<Group, std::vector<Group>, decltype(later)> heap(
      later, std::move(groups));
  MergePlan plan;
  while (heap.size() >= 2 && plan.freed_bytes < short_bytes) {
    Group merged = heap.top();
    heap.pop();
    const Group& other = heap.top();
    merged.replicas.insert(merged.replicas.end(), other.replicas.begin(),
                           other.replicas.end());
    merged.load = std::max(merged.load, other.load);
    heap.pop();
    heap.push(std::move(merged));
    plan.freed_bytes += copy_bytes;
    ++plan.merges;
  }
  for (; !heap.empty(); heap.pop()) plan.groups.push_back(heap.top());
  return plan;
}

}  // namespace fineserve::overload
