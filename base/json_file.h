#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// A JSON object read from a file. Errors of its readers name file and field. An absent or null field returns
/// nullopt.
class JsonFile {
  public:
    /// If the file is missing, the message names its purpose, `needed_for`.
    static Result<JsonFile> read(const std::string& path, std::string_view needed_for);
    static Result<std::optional<JsonFile>> read_if_present(const std::string& path);
    /// The object in a text; absent if it is none. Errors end with `remedy`, "; make it again".
    static std::optional<JsonFile> parse(const std::string& text, const std::string& path,
                                         const std::string& remedy = "");

    const std::string& path() const { return path_; }
    const std::string& prefix() const { return prefix_; }
    const nlohmann::json& json() const { return json_; }
    const nlohmann::json* find(const char* field) const;
    Result<std::optional<JsonFile>> object(const char* field) const;
    /// The objects of a list.
    Result<std::vector<JsonFile>> objects(const char* field) const;
    Result<std::optional<std::string>> text(const char* field) const;
    Result<std::optional<bool>> boolean(const char* field) const;
    Result<std::optional<double>> positive(const char* field) const;
    /// An integer from 1 to `max_value`.
    Result<std::optional<int>> count(const char* field, std::int64_t max_value) const;
    Result<int> required_count(const char* field, std::int64_t max_value) const;
    /// "FILE: FIELD is VALUE, expected EXPECTED", and the remedy.
    Error field_error(const char* field, std::string_view expected) const;

  private:
    JsonFile(std::string path, std::string prefix, nlohmann::json value, std::string remedy = "")
        : path_(std::move(path)),
          remedy_(std::move(remedy)),
          prefix_(std::move(prefix)),
          json_(std::move(value)) {}
    template <typename Value, typename Fits>
    Result<std::optional<Value>> value_of(const char* field, const std::string& expected, Fits fits) const;

    std::string path_, remedy_;
    std::string prefix_;  ///< prefix of field names in messages: "rope_scaling."
    nlohmann::json json_;
};

/// Formats a value for a message: short, one line.
std::string printable_json(const nlohmann::json& value);

}  // namespace draftscope
