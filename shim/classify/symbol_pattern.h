#ifndef SHIM_CLASSIFY_SYMBOL_PATTERN_H_
#define SHIM_CLASSIFY_SYMBOL_PATTERN_H_

namespace fineserve::shim {

// True if the whole of `text` matches one of the alternatives in `pattern`, as
// daemon/abi/rule.h defines them. Both end with NUL. Allocates nothing; time
// is at most |pattern| × |text|.
bool Matches(const char* pattern, const char* text);

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_SYMBOL_PATTERN_H_
