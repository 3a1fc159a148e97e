#ifndef TOOLS_UP_ORPHAN_ROLL_H_
#define TOOLS_UP_ORPHAN_ROLL_H_

#include <string>
#include <vector>

namespace fineserve::fsctl {

// Chooses the orphan that is to be drained and started again, one after
// another: the next one not before the last one serves in the pool of today. So
// a model with several engines is served all the time, and where a new pool is
// too small for an engine the others go on in the former one.
class OrphanRoll {
 public:
  struct Engine {
    std::string name;
    bool is_orphan = false;
    bool serves = false;
    bool rests = false;  // it is being drained
  };

  // To be called often, with all engines. The name of the one to restart now;
  // empty: none.
  std::string Next(const std::vector<Engine>& engines);

 private:
  std::string last_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_ORPHAN_ROLL_H_
