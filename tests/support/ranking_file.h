#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// A token ranking as a safetensors file; deleted with the object.
class RankingFile {
  public:
    explicit RankingFile(const std::vector<std::int32_t>& ids, const std::string& tensor = "ids");
    /// Also writes tensor `counts`.
    RankingFile(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& counts);
    /// Ranks every token of a vocabulary in a shuffled order, with descending counts.
    static RankingFile shuffled(int vocab);
    std::string path() const { return folder_.file("ranking.safetensors"); }

  private:
    void write(const std::vector<std::pair<std::string, std::vector<std::int32_t>>>& tensors) const;
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
