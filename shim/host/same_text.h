#ifndef SHIM_HOST_SAME_TEXT_H_
#define SHIM_HOST_SAME_TEXT_H_

namespace fineserve::shim {

// strcmp(a, b) == 0. Our own, for what answers dlsym: a sanitizer's runtime
// puts itself in place of strcmp and looks for the real one by dlsym first.
inline bool SameText(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

}  // namespace fineserve::shim

#endif  // SHIM_HOST_SAME_TEXT_H_
