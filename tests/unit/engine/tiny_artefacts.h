#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/engine/decode_rig.h"

namespace draftscope::testing {

/// Artefacts of every fitted head for a small random target, written and given to a rig: factors that leave
/// the LM head as it is, blurred by noise so that they are sometimes wrong, random routers over five groups,
/// and an affinity of each token with two others. Removed with the object.
class TinyArtefacts {
  public:
    explicit TinyArtefacts(DecodeRig& rig);

  private:
    struct Tensor {
        std::string name;
        std::vector<std::int64_t> shape;
        std::vector<float> floats;
        std::vector<std::int32_t> integers = {};
    };
    void save(const std::string& head, const std::map<std::string, std::string>& parameters,
              const std::vector<Tensor>& tensors);

    DecodeRig& rig_;
    int vocab_, hidden_;
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
