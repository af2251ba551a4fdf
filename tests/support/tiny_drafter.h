#pragma once

#include <cstdint>
#include <string>

#include "engine/formats/model_config.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// An EAGLE-2 checkpoint whose drafts a random target often accepts. It passes on the last token's embedding,
/// which largely determines a random target's next token; other weights are random. Deleted with the object.
class TinyEagle2 {
  public:
    TinyEagle2(const ModelConfig& target, std::uint64_t seed);
    const std::string& folder() const { return folder_.path(); }

  private:
    ScratchFolder folder_;
};

/// A Medusa or Hydra checkpoint with random residual blocks. With `whole`, a head has two blocks, the first
/// with a shortcut, and an LM head with a bias.
class TinyDecodingHeads {
  public:
    TinyDecodingHeads(const ModelConfig& target, bool uses_path, std::uint64_t seed, int heads = 4,
                      bool whole = false);
    const std::string& folder() const { return folder_.path(); }

  private:
    ScratchFolder folder_;
};

/// A random EAGLE-3 checkpoint with an LM head over some of the tokens (0 rows = the target's).
class TinyEagle3 {
  public:
    /// `normed` adds norms before fc.
    TinyEagle3(const ModelConfig& target, std::uint64_t seed, int lm_head_rows = 0, bool normed = false);
    const std::string& folder() const { return folder_.path(); }

  private:
    ScratchFolder folder_;
};

/// A random draft model: a GGUF file with the tokens of write_tiny_gguf(), of any target's hidden size.
class TinyDraftModel {
  public:
    TinyDraftModel(const ModelConfig& target, std::uint64_t seed);
    std::string path() const { return folder_.file("draft.gguf"); }

  private:
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
