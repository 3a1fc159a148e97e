#ifndef BENCH_FRAGMENTATION_LENGTHS_H_
#define BENCH_FRAGMENTATION_LENGTHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::bench {

// Reads the tokens of whole requests, input and output together, from a gzipped
// table with the columns input_tokens,output_tokens. Returns NotFound, with the
// path, if the file cannot be read.
absl::StatusOr<std::vector<uint32_t>> ReadLengths(const std::string& path);

}  // namespace fineserve::bench

#endif  // BENCH_FRAGMENTATION_LENGTHS_H_
