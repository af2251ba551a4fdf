#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// A token ranking as safetensors, removed with the object.
class RankingFile {
  public:
    explicit RankingFile(const std::vector<std::int32_t>& ids, const std::string& tensor = "ids");
    /// Every token of a vocabulary, in an order of its own.
    static RankingFile shuffled(int vocab);
    std::string path() const { return folder_.file("ranking.safetensors"); }

  private:
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
