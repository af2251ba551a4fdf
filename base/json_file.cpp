#include "base/json_file.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"

namespace draftscope {

using Json = nlohmann::json;

std::string printable_json(const Json& value) {
    return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<JsonFile> JsonFile::read(const std::string& path, std::string_view needed_for) {
    DS_ASSIGN(auto file, read_if_present(path));
    if (!file) return bad_input("{}: is missing; it is needed for {}", path, needed_for);
    return std::move(*file);
}

Result<std::optional<JsonFile>> JsonFile::read_if_present(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return std::optional<JsonFile>();
    std::ifstream file(path, std::ios::binary);
    if (!file || !std::filesystem::is_regular_file(path, error)) return bad_input("{}: cannot be read", path);
    Json json = Json::parse(file, nullptr, false);
    if (!json.is_object()) {
        std::string start(64, '\0');
        file.clear();
        file.seekg(0);
        file.read(start.data(), static_cast<std::streamsize>(start.size()));
        DS_TRY(check_no_lfs_pointer(path, start));
    }
    if (!json.is_object()) return bad_input("{}: is not a JSON object; the file is damaged", path);
    return std::optional<JsonFile>(JsonFile(path, "", std::move(json)));
}

std::optional<JsonFile> JsonFile::parse(const std::string& text, const std::string& path,
                                        const std::string& remedy) {
    Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return std::nullopt;
    return JsonFile(path, "", std::move(json), remedy);
}

const Json* JsonFile::find(const char* field) const {
    const auto found = json_.find(field);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
}

Error JsonFile::field_error(const char* field, std::string_view expected) const {
    const Json* value = find(field);
    return bad_input("{}: {}{} is {}, expected {}{}", path_, prefix_, field,
                     value == nullptr ? "missing" : printable_json(*value), expected, remedy_);
}

Result<std::optional<JsonFile>> JsonFile::object(const char* field) const {
    const Json* value = find(field);
    if (value == nullptr) return std::optional<JsonFile>();
    if (!value->is_object()) return field_error(field, "an object");
    return std::optional<JsonFile>(JsonFile(path_, prefix_ + field + ".", *value, remedy_));
}

Result<std::vector<JsonFile>> JsonFile::objects(const char* field) const {
    const Json* value = find(field);
    if (value == nullptr || !value->is_array()) return field_error(field, "a list of objects");
    std::vector<JsonFile> out;
    for (const Json& one : *value) {
        const std::string name = fmt::format("{}{}[{}]", prefix_, field, out.size());
        if (!one.is_object()) return bad_input("{}: {} is not an object{}", path_, name, remedy_);
        out.push_back(JsonFile(path_, name + ".", one, remedy_));
    }
    return out;
}

template <typename Value, typename Fits>
Result<std::optional<Value>> JsonFile::value_of(const char* field, const std::string& expected,
                                                Fits fits) const {
    const Json* found = find(field);
    if (found == nullptr) return std::optional<Value>();
    if (!fits(*found)) return field_error(field, expected);
    return std::optional<Value>(found->get<Value>());
}

Result<std::optional<std::string>> JsonFile::text(const char* field) const {
    return value_of<std::string>(field, "a string", [](const Json& found) { return found.is_string(); });
}

Result<std::optional<bool>> JsonFile::boolean(const char* field) const {
    return value_of<bool>(field, "true or false", [](const Json& found) { return found.is_boolean(); });
}

Result<std::optional<double>> JsonFile::positive(const char* field) const {
    return value_of<double>(field, "a positive number", [](const Json& found) {
        return found.is_number() && std::isfinite(found.get<double>()) && found.get<double>() > 0;
    });
}

Result<std::optional<int>> JsonFile::count(const char* field, std::int64_t max_value) const {
    return value_of<int>(field, fmt::format("an integer from 1 to {}", max_value), [&](const Json& found) {
        return found.is_number_integer() && found.get<double>() >= 1 &&
               found.get<double>() <= static_cast<double>(max_value);
    });
}

Result<int> JsonFile::required_count(const char* field, std::int64_t max_value) const {
    DS_ASSIGN(const auto value, count(field, max_value));
    if (!value) return field_error(field, fmt::format("an integer from 1 to {}", max_value));
    return *value;
}

}  // namespace draftscope
