#include "daemon/cli/suggestion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fineserve::cli {
namespace {

// Returns how many slips lead from `a` to `b`: the optimal string alignment
// distance.
size_t Slips(const std::string& a, const std::string& b) {
  const size_t width = b.size() + 1;
  std::vector<size_t> d((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> size_t& {
    return d[i * width + j];
  };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = at(i - 1, j - 1) + (a[i - 1] != b[j - 1]);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      const bool swapped =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

size_t MostSlips(const std::string& typed) {
  const size_t letters = std::count_if(typed.begin(), typed.end(),
                                       [](char c) { return c != '-'; });
  return letters < 3 ? 0 : letters < 5 ? 1 : 2;
}

}  // namespace

std::string DidYouMean(const std::string& typed,
                       const std::vector<std::string>& known) {
  size_t least = MostSlips(typed) + 1;
  std::string nearest;
  for (const std::string& word : known) {
    const size_t slips = Slips(typed, word);
    if (slips >= least) continue;
    least = slips;
    nearest = word;
  }
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace fineserve::cli
