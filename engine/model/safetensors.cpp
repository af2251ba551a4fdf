#include <array>
#include <cassert>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/model/dequant.h"
#include "engine/model/mapped_file.h"
#include "engine/model/model_file.h"
#include "engine/model/stored_bytes.h"
#include "engine/model/tensor_index.h"

// Layout: u64 header length, that many bytes of JSON {name: {dtype, shape, data_offsets}}, data. Offsets
// count from the end of the header.
namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t largest_header = 100'000'000;  // the format's own limit

template <typename T>
T load(const std::uint8_t* data) {
    T value;
    std::memcpy(&value, data, sizeof(T));
    return value;
}

template <typename T>
void as_floats(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<float>(load<T>(data + static_cast<std::size_t>(i) * sizeof(T)));
}

template <typename T>
void as_integers(const std::uint8_t* data, std::int64_t count, std::int64_t* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<std::int64_t>(load<T>(data + static_cast<std::size_t>(i) * sizeof(T)));
}

void f32_floats(const std::uint8_t* data, std::int64_t count, float* out) {
    std::memcpy(out, data, static_cast<std::size_t>(count) * sizeof(float));
}
void f16_floats(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = f16_to_f32(load<std::uint16_t>(data + 2 * i));
}
void bf16_floats(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load<std::uint16_t>(data + 2 * i));
}

struct DataType {
    std::string_view name;
    std::uint64_t bytes;
    void (*floats)(const std::uint8_t*, std::int64_t, float*);
    void (*integers)(const std::uint8_t*, std::int64_t, std::int64_t*);  ///< null: not an integer type
};

constexpr std::array data_types = {
    DataType{"F64", 8, as_floats<double>, nullptr},
    DataType{"F32", 4, f32_floats, nullptr},
    DataType{"F16", 2, f16_floats, nullptr},
    DataType{"BF16", 2, bf16_floats, nullptr},
    DataType{"I64", 8, as_floats<std::int64_t>, as_integers<std::int64_t>},
    DataType{"I32", 4, as_floats<std::int32_t>, as_integers<std::int32_t>},
    DataType{"I16", 2, as_floats<std::int16_t>, as_integers<std::int16_t>},
    DataType{"I8", 1, as_floats<std::int8_t>, as_integers<std::int8_t>},
    DataType{"U8", 1, as_floats<std::uint8_t>, as_integers<std::uint8_t>},
    DataType{"BOOL", 1, as_floats<std::uint8_t>, as_integers<std::uint8_t>},
};

struct Entry {
    TensorInfo info;
    const DataType* type;
    const std::uint8_t* data;
};

class Safetensors final : public WeightSource {
  public:
    explicit Safetensors(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

    Status read_header();

    const std::string& path() const override { return file_->path(); }
    const TensorInfo* find(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        return entry == nullptr ? nullptr : &entry->info;
    }
    std::vector<std::string> names() const override { return entries_.names(); }

    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr && row >= 0 && row < tensor.rows());
        const auto row_bytes = static_cast<std::int64_t>(entry->type->bytes) * tensor.cols();
        entry->type->floats(entry->data + row * row_bytes, tensor.cols(), out);
    }

    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const {
        const Entry* entry = entries_.find(tensor.name);
        if (entry == nullptr) return {};
        return {entry->data, static_cast<std::size_t>(entry->info.bytes)};
    }

    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        if (entry == nullptr) return bad_input("{}: tensor '{}' is missing", path(), name);
        if (entry->type->integers == nullptr) {
            return bad_input("{}: tensor '{}' has type {}, expected integers", path(), name,
                             entry->info.type);
        }
        const std::uint64_t count = entry->info.bytes / entry->type->bytes;
        std::vector<std::int64_t> out(static_cast<std::size_t>(count));
        entry->type->integers(entry->data, static_cast<std::int64_t>(count), out.data());
        return out;
    }

    std::string metadata(std::string_view key) const override {
        const auto found = metadata_.find(key);
        return found == metadata_.end() ? std::string() : found->second;
    }

  private:
    Result<Json> parse_header(std::string_view text) const;
    Status read_metadata(const Json& value);
    Status read_tensor(const std::string& name, const Json& value, std::span<const std::uint8_t> data);

    std::shared_ptr<const MappedFile> file_;
    TensorIndex<Entry> entries_;
    std::map<std::string, std::string, std::less<>> metadata_;
};

Status Safetensors::read_header() {
    const auto bytes = file_->bytes();
    ByteCursor cursor(bytes);
    const auto length = cursor.read<std::uint64_t>();
    if (!length)
        return bad_input("{}: not a safetensors file: {} bytes, shorter than its header", path(),
                         bytes.size());
    if (*length > largest_header) {
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
        metadata_.emplace(key, text.get<std::string>());
    }
    return {};
}

/// An unsigned integer of the header; nothing for anything else.
std::optional<std::uint64_t> unsigned_of(const Json& value) {
    if (!value.is_number_unsigned()) return std::nullopt;
    return value.get<std::uint64_t>();
}

Status Safetensors::read_tensor(const std::string& name, const Json& value,
                                std::span<const std::uint8_t> data) {
    const std::string shown = printable(name);
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
        return bad_input("{}: tensor '{}' lacks a proper dtype, shape or data_offsets", path(), shown);
    }
    Entry entry{{name, value["dtype"].get<std::string>(), {}, 0}, nullptr, nullptr};
    for (const DataType& type : data_types) {
        if (type.name == entry.info.type) entry.type = &type;
    }
    if (entry.type == nullptr) {
        return bad_input("{}: tensor '{}' has type {}, which this version does not read", path(), shown,
                         printable(entry.info.type));
    }
    std::optional<std::uint64_t> needed = entry.type->bytes;
    for (const Json& extent : value["shape"]) {
        const auto size = unsigned_of(extent);
        if (!size || *size > static_cast<std::uint64_t>(INT64_MAX))
            return bad_input("{}: tensor '{}' has an impossible shape", path(), shown);
        needed = needed ? checked_product(*needed, *size) : std::nullopt;
        entry.info.shape.push_back(static_cast<std::int64_t>(*size));
    }
    if (entry.info.shape.empty()) entry.info.shape.push_back(1);
    const auto begin = unsigned_of(value["data_offsets"][0]);
    const auto end = unsigned_of(value["data_offsets"][1]);
    if (!needed || !begin || !end || *begin > *end)
        return bad_input("{}: tensor '{}' has an impossible shape or data_offsets", path(), shown);
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
    entry.info.bytes = *needed;
    entry.data = data.data() + *begin;
    entries_.add(name, std::move(entry));
    return {};
}

}  // namespace

std::span<const std::uint8_t> stored_bytes(const WeightSource& source, const TensorInfo& tensor) {
    const auto* file = dynamic_cast<const Safetensors*>(&source);
    return file == nullptr ? std::span<const std::uint8_t>() : file->stored(tensor);
}

Result<std::unique_ptr<WeightSource>> open_safetensors(const std::string& path) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a safetensors file"));
    auto out = std::make_unique<Safetensors>(std::move(file));
    DS_TRY(out->read_header());
    return std::unique_ptr<WeightSource>(std::move(out));
}

}  // namespace draftscope
