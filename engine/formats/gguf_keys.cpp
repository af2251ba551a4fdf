#include "engine/formats/gguf_keys.h"

#include <cmath>

namespace draftscope {

Result<std::optional<int>> GgufKeys::optional(std::string_view field, std::int64_t max_value) const {
    DS_ASSIGN(const auto value, file_.integer(key(field)));
    if (!value) return std::optional<int>();
    if (*value < 1 || *value > max_value) {
        return bad_input("{}: metadata '{}' is {}, expected 1 to {}", file_.path(), key(field), *value,
                         max_value);
    }
    return std::optional<int>(static_cast<int>(*value));
}

Result<int> GgufKeys::required(std::string_view field, std::int64_t max_value) const {
    DS_ASSIGN(const auto value, optional(field, max_value));
    if (!value) return missing(field);
    return *value;
}

Result<std::optional<double>> GgufKeys::positive(std::string_view field) const {
    DS_ASSIGN(const auto value, file_.number(key(field)));
    if (value && (!std::isfinite(*value) || *value <= 0))
        return bad_input("{}: metadata '{}' is {}, expected a positive number", file_.path(), key(field),
                         *value);
    return value;
}

Error GgufKeys::missing(std::string_view field) const {
    return bad_input("{}: metadata '{}' is missing; the file does not describe a complete model",
                     file_.path(), key(field));
}

}  // namespace draftscope
