#ifndef BENCH_PAPER_VERDICT_H_
#define BENCH_PAPER_VERDICT_H_

#include "bench/paper/interval.h"

namespace fineserve::bench {

// Meaning of a paper's number.
enum class Sense {
  kGain,   // a ratio or a difference over `even`: more is better
  kAbout,  // a value: within a fifth of it
  kExact,  // the same thing, 1 or not, 0
};

enum class Verdict {
  kReproduced,     // as much as the paper has, or more
  kDirectionOnly,  // the same sign, and beyond chance, but less
  kNot,
};
const char* Name(Verdict verdict);

// Judges a gain of `paper`, where `even` means no gain (1 for a ratio, 0 for a
// difference). It is seen in its direction if our interval is beyond `even`,
// and is reproduced if it also reaches the paper's number.
Verdict Judge(Sense sense, double paper, double even, const Interval& ours);

// The worse of two.
Verdict Worse(Verdict a, Verdict b);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_VERDICT_H_
