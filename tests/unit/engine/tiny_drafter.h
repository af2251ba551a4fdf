#pragma once

#include <cstdint>
#include <string>

#include "engine/model/model_config.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// An EAGLE-2 checkpoint for a random target that is often right: it passes the last token's embedding on, on
/// which a random target's next token depends most. The rest is random. Removed with the object.
class TinyEagle2 {
  public:
    TinyEagle2(const ModelConfig& target, std::uint64_t seed);
    const std::string& folder() const { return folder_.path(); }

  private:
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
