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

/// A Medusa or Hydra checkpoint with random residual blocks. `whole`: a head has two, the first with a
/// shortcut, and an LM head of its own with a bias.
class TinyPathHeads {
  public:
    TinyPathHeads(const ModelConfig& target, bool sees_path, std::uint64_t seed, int heads = 4,
                  bool whole = false);
    const std::string& folder() const { return folder_.path(); }

  private:
    ScratchFolder folder_;
};

/// A random EAGLE-3 checkpoint with a head of its own over some of the tokens (`own_rows` 0 = the target's).
class TinyEagle3 {
  public:
    /// With `normed`, norms in front of its fc.
    TinyEagle3(const ModelConfig& target, std::uint64_t seed, int own_rows = 0, bool normed = false);
    const std::string& folder() const { return folder_.path(); }

  private:
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
