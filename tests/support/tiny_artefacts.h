#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// Artefacts of every fitted head for a small random target, passed to a fixture. Noisy factors of the LM
/// head make proposals wrong at times; routers over five groups are random. The affinity links each token
/// with two others. The files are deleted with the object.
class TinyArtefacts {
  public:
    explicit TinyArtefacts(DecodeFixture& fixture);

  private:
    struct Tensor {
        std::string name;
        std::vector<std::int64_t> shape;
        std::vector<float> floats;
        std::vector<std::int32_t> integers = {};
    };
    void save(const std::string& head, const std::map<std::string, std::string>& parameters,
              const std::vector<Tensor>& tensors);

    DecodeFixture& fixture_;
    int vocab_, hidden_;
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
