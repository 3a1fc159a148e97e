#ifndef BENCH_PAPER_READ_DATA_H_
#define BENCH_PAPER_READ_DATA_H_

#include <string>

#include "bench/paper/scene.h"

namespace fineserve::bench {

// Reads the measurements and traces of a folder; ends the bench if it cannot.
Data ReadData(const std::string& folder);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_READ_DATA_H_
