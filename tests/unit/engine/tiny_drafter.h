#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/model/model_config.h"

namespace draftscope::testing {

/// A folder with a random EAGLE-2 checkpoint for `target`, removed with the object.
class TinyEagle2 {
  public:
    TinyEagle2(const ModelConfig& target, std::uint64_t seed);
    ~TinyEagle2();
    TinyEagle2(const TinyEagle2&) = delete;
    TinyEagle2& operator=(const TinyEagle2&) = delete;
    const std::string& folder() const { return folder_; }

  private:
    std::string folder_;
};

/// A ranking file with every token of a vocabulary in an order of its own, removed with the object.
class TinyRanking {
  public:
    explicit TinyRanking(int vocab);
    ~TinyRanking();
    TinyRanking(const TinyRanking&) = delete;
    TinyRanking& operator=(const TinyRanking&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string folder_, path_;
};

}  // namespace draftscope::testing
