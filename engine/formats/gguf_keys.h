#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/formats/gguf.h"
#include "engine/formats/model_config.h"

namespace draftscope {

/// The sizes and constants behind one prefix of the keys, "llama".
class GgufKeys {
  public:
    GgufKeys(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

    std::string key(std::string_view field) const { return prefix_ + "." + std::string(field); }
    Result<std::optional<int>> optional(std::string_view field, std::int64_t max_value = max_extent) const;
    Result<int> required(std::string_view field, std::int64_t max_value = max_extent) const;
    Result<std::optional<double>> positive(std::string_view field) const;
    Error missing(std::string_view field) const;

  private:
    const GgufFile& file_;
    std::string prefix_;
};

}  // namespace draftscope
