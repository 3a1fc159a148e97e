#include "daemon/scheduling/overload/drop_plan.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace fineserve::overload {
namespace {

// Work of a part that has none.
constexpr double kNoWork = 1e-9;

uint64_t Lacks(const absl::optional<uint64_t>& wanted, const Loans& loans) {
  return wanted && *wanted > loans.bytes ? *wanted - loans.bytes : 0;
}

// Tracks which replica has a copy of each part, and which replica lends it.
class Copies {
 public:
  Copies(const std::vector<Part>& parts,
         const std::vector<absl::optional<uint64_t>>& wanted,
         const Lending& lending)
      : parts_(parts),
        wanted_(wanted),
        of_(parts.size(), std::vector<Copy>(lending.size(), Copy::kOwn)),
        lent_(lending.size()) {
    for (uint32_t i = 0; i < lending.size(); ++i) {
      for (const Loan& loan : lending[i].all) Drop(loan.part, i, loan.lender);
    }
    for (const Part& part : parts) copy_ += part.step_bytes;
  }

  void Drop(size_t part, uint32_t reader, uint32_t lender) {
    of_[part][reader] = Copy::kDropped;
    if (lender >= lent_.size()) return;
    of_[part][lender] = Copy::kLent;
    lent_[lender] += parts_[part].step_bytes;
  }

  // Returns the replica from which `reader` may read the part instead of its
  // own copy.
  absl::optional<uint32_t> LenderOf(size_t part, uint32_t reader,
                                    const Lending& lending) const {
    const std::vector<Copy>& copies = of_[part];
    absl::optional<uint32_t> best;
    if (copies[reader] != Copy::kOwn) return best;
    const auto rank = [&](uint32_t i) {
      return std::make_tuple(lent_[i] + parts_[part].step_bytes > copy_,
                             copies[i] != Copy::kLent, lent_[i],
                             Lacks(wanted_[i], lending[i]));
    };
    for (uint32_t i = 0; i < copies.size(); ++i) {
      if (i == reader || !wanted_[i] || copies[i] == Copy::kDropped) continue;
      if (!best || rank(i) < rank(*best)) best = i;
    }
    return best;
  }

 private:
  enum class Copy : uint8_t { kOwn, kLent, kDropped };

  const std::vector<Part>& parts_;
  const std::vector<absl::optional<uint64_t>>& wanted_;
  std::vector<std::vector<Copy>> of_;  // by part and replica
  std::vector<uint64_t> lent_;         // that steps of others read; bytes
  uint64_t copy_ = 0;                  // that a step reads; bytes
};

}  // namespace

std::vector<size_t> DropOrder(const std::vector<Part>& parts) {
  std::vector<double> cost;
  for (const Part& part : parts) {
    // A step reads only its tokens' rows of an embedding, which is almost
    // nothing for each byte that is freed, but none of its work hides these
    // reads.
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

Lending Lend(const std::vector<Part>& parts,
             const std::vector<absl::optional<uint64_t>>& wanted,
             Lending lending) {
  Copies copies(parts, wanted, lending);
  const std::vector<size_t> order = DropOrder(parts);
  // The next part of each replica: if a replica cannot drop a part now, it
  // cannot drop it later.
  std::vector<size_t> next(lending.size());
  for (;;) {
    uint32_t reader = 0;
    uint64_t most = 0;
    for (uint32_t i = 0; i < lending.size(); ++i) {
      const uint64_t lacks = Lacks(wanted[i], lending[i]);
      if (lacks <= most || next[i] == order.size()) continue;
      most = lacks;
      reader = i;
    }
    if (most == 0) return lending;
    const size_t part = order[next[reader]++];
    const auto lender = copies.LenderOf(part, reader, lending);
    if (!lender) continue;
    copies.Drop(part, reader, *lender);
    lending[reader].all.push_back({part, *lender});
    lending[reader].bytes += parts[part].bytes;
  }
}

std::vector<sched::PeerReads> ReadsOf(const Lending& lending,
                                      const std::vector<Part>& parts,
                                      double link_bytes_per_us, double reread) {
  const size_t n = lending.size();
  std::vector<sched::PeerReads> reads(n);
  // Bytes of a step, by lender and reader.
  std::vector<std::vector<double>> from(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    double bytes = 0;
    for (const Loan& loan : lending[i].all) {
      const auto step_bytes = static_cast<double>(parts[loan.part].step_bytes);
      bytes += step_bytes;
      reads[i].work += parts[loan.part].work;
      if (loan.lender < n) from[loan.lender][i] += step_bytes;
    }
    reads[i].link_us = bytes / link_bytes_per_us;
    reads[i].reread = reread;
  }
  for (const std::vector<double>& readers : from) {
    for (size_t i = 0; i < n; ++i) {
      // When a reader has read its bytes, each other reader has read as many,
      // or all of its own bytes.
      double bytes = 0;
      for (const double others : readers) bytes += std::min(others, readers[i]);
      reads[i].link_us = std::max(reads[i].link_us, bytes / link_bytes_per_us);
    }
  }
  return reads;
}

MergePlan MergeGroups(std::vector<Group> groups, uint64_t copy_bytes,
                      uint64_t short_bytes) {
  // The smallest groups come first and, of equally small ones, the one with the
  // most load.
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
