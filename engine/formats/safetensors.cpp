#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/formats/tensor_file.h"

// Layout: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data. Offsets are relative to
// the end of the header.
namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's limit

Result<Json> parse_header(std::string_view text, const std::string& path) {
    if (text.empty() || text.front() != '{')
        return bad_input("{}: not a safetensors file: the header is not a JSON object", path);
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
    if (!header.is_object()) return bad_input("{}: the header is not valid JSON; the file is damaged", path);
    if (!repeated.empty()) return bad_input("{}: tensor '{}' appears twice", path, printable(repeated));
    return header;
}

Status read_metadata(const Json& value, TensorFile& out) {
    if (!value.is_object()) return bad_input("{}: __metadata__ is not a JSON object", out.path());
    for (const auto& [key, text] : value.items()) {
        if (!text.is_string())
            return bad_input("{}: __metadata__ '{}' is not a string", out.path(), printable(key));
        out.add_metadata(key, text.get<std::string>());
    }
    return {};
}

/// Reads an unsigned integer of the header; nullopt for other values.
std::optional<std::uint64_t> read_unsigned(const Json& value) {
    if (!value.is_number_unsigned()) return std::nullopt;
    return value.get<std::uint64_t>();
}

/// A tolerant reader keeps tensors of unknown types, and those whose data is cut off.
Status read_tensor(const std::string& name, const Json& value, std::span<const std::uint8_t> data,
                   bool tolerant, TensorFile& out) {
    const std::string shown = printable(name);
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
        return bad_input("{}: tensor '{}' lacks a valid dtype, shape or data_offsets", out.path(), shown);
    }
    TensorInfo info{name, value["dtype"].get<std::string>(), {}, 0};
    const TensorType* type = find_plain_type(info.type);
    const bool known = type != nullptr;
    if (!known && tolerant) type = find_plain_type("U8");
    if (type == nullptr) {
        return bad_input("{}: tensor '{}' has type {}, which this version does not read", out.path(), shown,
                         printable(info.type));
    }
    for (const Json& extent : value["shape"]) {
        const auto size = read_unsigned(extent);
        if (!size || *size > static_cast<std::uint64_t>(INT64_MAX))
            return bad_input("{}: tensor '{}' has an invalid shape", out.path(), shown);
        info.shape.push_back(static_cast<std::int64_t>(*size));
    }
    const auto begin = read_unsigned(value["data_offsets"][0]);
    const auto end = read_unsigned(value["data_offsets"][1]);
    std::optional<std::uint64_t> needed = stored_bytes(*type, info.shape);
    if (!known && begin && end) needed = *end - *begin;
    if (info.shape.empty()) info.shape.push_back(1);
    if (!needed || !begin || !end || *begin > *end)
        return bad_input("{}: tensor '{}' has an invalid shape or data_offsets", out.path(), shown);
    if (*end - *begin != *needed) {
        return bad_input("{}: tensor '{}' takes {} bytes by its shape and {} by its data_offsets", out.path(),
                         shown, *needed, *end - *begin);
    }
    const bool complete = *end <= data.size();
    if (!complete && !tolerant) {
        return bad_input(
            "{}: tensor '{}' needs {} bytes of data, {} are present; the file is truncated, fetch it "
            "again",
            out.path(), shown, *end, data.size());
    }
    info.bytes = *needed;
    out.add({std::move(info), type, complete ? data.data() + *begin : nullptr, out.files().front()});
    return {};
}

}  // namespace

Status read_safetensors(TensorFile& out, bool tolerant) {
    const auto bytes = out.files().front()->bytes();
    ByteCursor cursor(bytes);
    const auto length = cursor.read<std::uint64_t>();
    if (!length)
        return bad_input("{}: not a safetensors file: {} bytes, shorter than its header", out.path(),
                         bytes.size());
    if (*length > max_header_bytes) {
        const std::string_view start(reinterpret_cast<const char*>(bytes.data()), 8);
        return bad_input("{}: not a safetensors file: first bytes are \"{}\", a header length of {}",
                         out.path(), printable(start), *length);
    }
    const auto text = cursor.read_text(*length);
    if (!text) {
        return bad_input("{}: header of {} bytes, {} are present; the file is truncated, fetch it again",
                         out.path(), *length, cursor.remaining());
    }
    DS_ASSIGN(const Json header, parse_header(*text, out.path()));
    const auto data = bytes.subspan(cursor.position());
    for (const auto& [name, value] : header.items()) {
        if (name == "__metadata__")
            DS_TRY(read_metadata(value, out));
        else if (const Status read = read_tensor(name, value, data, tolerant, out); !read.ok() && !tolerant)
            return read;
    }
    return {};
}

}  // namespace draftscope
