#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/formats/mapped_tensors.h"
#include "engine/formats/model_file.h"

// Layout: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data. Offsets are relative to
// the end of the header.
namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's limit

class Safetensors final : public MappedTensors {
  public:
    using MappedTensors::MappedTensors;

    Status read_header();

  private:
    Result<Json> parse_header(std::string_view text) const;
    Status read_metadata(const Json& value);
    Status read_tensor(const std::string& name, const Json& value, std::span<const std::uint8_t> data);
};

Status Safetensors::read_header() {
    const auto bytes = file().bytes();
    ByteCursor cursor(bytes);
    const auto length = cursor.read<std::uint64_t>();
    if (!length)
        return bad_input("{}: not a safetensors file: {} bytes, shorter than its header", path(),
                         bytes.size());
    if (*length > max_header_bytes) {
        const std::string_view start(reinterpret_cast<const char*>(bytes.data()), 8);
        return bad_input("{}: not a safetensors file: first bytes are \"{}\", a header length of {}", path(),
                         printable(start), *length);
    }
    const auto text = cursor.read_text(*length);
    if (!text) {
        return bad_input("{}: header of {} bytes, {} are present; the file is truncated, fetch it again",
                         path(), *length, cursor.remaining());
    }
    DS_ASSIGN(const Json header, parse_header(*text));
    const auto data = bytes.subspan(cursor.position());
    for (const auto& [name, value] : header.items()) {
        if (name == "__metadata__")
            DS_TRY(read_metadata(value));
        else
            DS_TRY(read_tensor(name, value, data));
    }
    return {};
}

Result<Json> Safetensors::parse_header(std::string_view text) const {
    if (text.empty() || text.front() != '{')
        return bad_input("{}: not a safetensors file: the header is not a JSON object", path());
    std::set<std::string> names;
    std::string repeated;
    const auto watch_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::key && depth == 1) {
            const auto name = parsed.get<std::string>();
            if (!names.insert(name).second) repeated = name;
        }
        return true;
    };
    Json header = Json::parse(text.begin(), text.end(), watch_keys, false);
    if (!header.is_object())
        return bad_input("{}: the header is not valid JSON; the file is damaged", path());
    if (!repeated.empty()) return bad_input("{}: tensor '{}' appears twice", path(), printable(repeated));
    return header;
}

Status Safetensors::read_metadata(const Json& value) {
    if (!value.is_object()) return bad_input("{}: __metadata__ is not a JSON object", path());
    for (const auto& [key, text] : value.items()) {
        if (!text.is_string())
            return bad_input("{}: __metadata__ '{}' is not a string", path(), printable(key));
        add_metadata(key, text.get<std::string>());
    }
    return {};
}

/// Reads an unsigned integer of the header; nullopt for other values.
std::optional<std::uint64_t> read_unsigned(const Json& value) {
    if (!value.is_number_unsigned()) return std::nullopt;
    return value.get<std::uint64_t>();
}

Status Safetensors::read_tensor(const std::string& name, const Json& value,
                                std::span<const std::uint8_t> data) {
    const std::string shown = printable(name);
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
        return bad_input("{}: tensor '{}' lacks a valid dtype, shape or data_offsets", path(), shown);
    }
    TensorInfo info{name, value["dtype"].get<std::string>(), {}, 0};
    const DataType* type = find_data_type(info.type);
    if (type == nullptr) {
        return bad_input("{}: tensor '{}' has type {}, which this version does not read", path(), shown,
                         printable(info.type));
    }
    for (const Json& extent : value["shape"]) {
        const auto size = read_unsigned(extent);
        if (!size || *size > static_cast<std::uint64_t>(INT64_MAX))
            return bad_input("{}: tensor '{}' has an invalid shape", path(), shown);
        info.shape.push_back(static_cast<std::int64_t>(*size));
    }
    const std::optional<std::uint64_t> needed = tensor_bytes(*type, info.shape);
    const auto begin = read_unsigned(value["data_offsets"][0]);
    const auto end = read_unsigned(value["data_offsets"][1]);
    if (!needed || !begin || !end || *begin > *end)
        return bad_input("{}: tensor '{}' has an invalid shape or data_offsets", path(), shown);
    if (*end - *begin != *needed) {
        return bad_input("{}: tensor '{}' takes {} bytes by its shape and {} by its data_offsets", path(),
                         shown, *needed, *end - *begin);
    }
    if (*end > data.size()) {
        return bad_input(
            "{}: tensor '{}' needs {} bytes of data, {} are present; the file is truncated, fetch it "
            "again",
            path(), shown, *end, data.size());
    }
    info.bytes = *needed;
    add(std::move(info), *type, data.data() + *begin);
    return {};
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_safetensors(const std::string& path) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a safetensors file"));
    auto out = std::make_unique<Safetensors>(std::move(file));
    DS_TRY(out->read_header());
    return std::unique_ptr<WeightSource>(std::move(out));
}

}  // namespace draftscope
