#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace draftscope::storage {

using Json = nlohmann::json;

inline constexpr std::int64_t max_count = 1 << 30;

/// Reads the fields of a JSON object and keeps the first problem. Absent and null fields are not known.
class RoundFields {
  public:
    explicit RoundFields(const Json& object) : object_(object) {}

    /// Returns the value of a key, or of a path such as "timings.draft_n"; null if it is absent.
    const Json* find(std::string_view path) const;
    /// Returns the first of an answer's `choices`; null if it has none.
    const Json* first_choice() const;
    std::optional<std::int64_t> integer(std::string_view path, std::int64_t low = 0,
                                        std::int64_t high = max_count);
    std::optional<double> real(std::string_view path);
    std::string text(std::string_view path);
    bool flag(std::string_view path);
    /// With a negative `low`, null is -1.
    std::optional<std::vector<int>> integers(std::string_view path, std::int64_t low = 0,
                                             std::int64_t high = max_count);
    /// Log-probabilities, at most 0; NaN for null.
    std::optional<std::vector<float>> logprobs(std::string_view path);
    void refuse(std::string_view path, const std::string& why);
    const std::string& problem() const { return problem_; }

  private:
    /// Returns the list at a path; null if it is absent, or no list and thus refused.
    const Json* find_list(std::string_view path);
    void refuse_value(std::string_view path, const Json& value, const std::string& expected);

    const Json& object_;
    std::string problem_;  ///< "" = none
};

}  // namespace draftscope::storage
