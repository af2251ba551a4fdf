#include "engine/formats/gguf.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace draftscope {
namespace {

constexpr std::uint32_t first_version = 2, last_version = 3;  // equal but for big-endian files of 3
constexpr std::uint32_t max_dimensions = 4;
constexpr std::uint64_t default_alignment = 32;
constexpr std::uint64_t max_alignment = std::uint64_t{1} << 20;
// Minimum encoded sizes; they bound the counts of a damaged header before anything is allocated.
constexpr std::uint64_t min_key_value_bytes = 8 + 4 + 1;
constexpr std::uint64_t min_tensor_info_bytes = 8 + 4 + 8 + 4 + 8;

constexpr std::array<std::string_view, 13> type_names = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
/// Bytes of one element; 0 = variable (length prefix and bytes).
constexpr std::array<std::uint64_t, 13> type_sizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::size_t type_index(GgufType type) {
    return static_cast<std::size_t>(type);
}

bool is_integer(GgufType type) {
    switch (type) {
        case GgufType::f32:
        case GgufType::f64:
        case GgufType::boolean:
        case GgufType::string:
        case GgufType::array:
            return false;
        default:
            return true;
    }
}

template <typename T>
std::optional<std::int64_t> read_as_integer(ByteCursor& cursor) {
    const auto value = cursor.read<T>();
    if (!value || !std::in_range<std::int64_t>(*value)) return std::nullopt;
    return static_cast<std::int64_t>(*value);
}

/// nullopt for a u64 that does not fit.
std::optional<std::int64_t> next_integer(ByteCursor& cursor, GgufType type) {
    switch (type) {
        case GgufType::u8:
            return read_as_integer<std::uint8_t>(cursor);
        case GgufType::i8:
            return read_as_integer<std::int8_t>(cursor);
        case GgufType::u16:
            return read_as_integer<std::uint16_t>(cursor);
        case GgufType::i16:
            return read_as_integer<std::int16_t>(cursor);
        case GgufType::u32:
            return read_as_integer<std::uint32_t>(cursor);
        case GgufType::i32:
            return read_as_integer<std::int32_t>(cursor);
        case GgufType::u64:
            return read_as_integer<std::uint64_t>(cursor);
        case GgufType::i64:
            return read_as_integer<std::int64_t>(cursor);
        default:
            return std::nullopt;
    }
}

constexpr std::string_view split_count = "split.count", split_number = "split.no";

/// The end of the name of part `index`, from 0: "-00001-of-00003.gguf".
std::string split_ending(std::int64_t index, std::int64_t count) {
    return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

/// Returns `path` without the ending of any part.
std::string without_split_ending(const std::string& path) {
    constexpr std::string_view pattern = "-00000-of-00000.gguf";
    if (path.size() < pattern.size()) return path;
    const std::size_t begin = path.size() - pattern.size();
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = path[begin + i];
        if (pattern[i] == '0' ? c < '0' || c > '9' : c != pattern[i]) return path;
    }
    return path.substr(0, begin);
}

std::string describe(const GgufValue& value) {
    const std::string_view name = type_names[type_index(value.type)];
    return value.is_array ? fmt::format("an array of {} {}", value.count, name) : fmt::format("one {}", name);
}

}  // namespace

/// Parses the header in one pass.
class GgufFile::Parser {
  public:
    Parser(GgufFile& out) : out_(out), path_(out.path()), cursor_(out.bytes()) {}

    Status run() {
        DS_TRY(read_header());
        for (std::uint64_t i = 0; i < value_count_; ++i) DS_TRY(read_key_value(i));
        DS_TRY(read_alignment());
        for (std::uint64_t i = 0; i < tensor_count_; ++i) DS_TRY(read_tensor_info(i));
        return locate_tensors();
    }

  private:
    struct Pending {
        std::string name;
        std::uint64_t offset;
    };

    Error cut_short(std::string_view what) const {
        return bad_input("{}: ends inside {} (at byte {} of {}); the file is incomplete, fetch it again",
                         path_, what, cursor_.position(), out_.bytes().size());
    }

    Status read_header() {
        const auto bytes = out_.bytes();
        const auto magic = cursor_.read_text(std::min<std::size_t>(4, bytes.size()));
        if (*magic != "GGUF") {
            return bad_input("{}: not a GGUF file: first bytes are \"{}\", expected \"GGUF\"", path_,
                             printable(*magic));
        }
        const auto version = cursor_.read<std::uint32_t>();
        if (!version) return cut_short("the header");
        if (const auto swapped = __builtin_bswap32(*version); swapped >= 1 && swapped <= last_version) {
            return bad_input(
                "{}: is a big-endian GGUF file; this program reads little-endian ones, convert it", path_);
        }
        if (*version < first_version || *version > last_version) {
            return bad_input("{}: GGUF version {}, this program reads versions {} and {}; {}", path_,
                             *version, first_version, last_version,
                             *version < first_version ? "convert the model again" : "update the program");
        }
        const auto tensors = cursor_.read<std::uint64_t>();
        const auto values = cursor_.read<std::uint64_t>();
        if (!tensors || !values) return cut_short("the header");
        if (*values > cursor_.remaining() / min_key_value_bytes)
            return bad_input("{}: the header lists {} metadata entries, more than the file can hold", path_,
                             *values);
        if (*tensors > cursor_.remaining() / min_tensor_info_bytes)
            return bad_input("{}: the header lists {} tensors, more than the file can hold", path_, *tensors);
        tensor_count_ = *tensors;
        value_count_ = *values;
        return {};
    }

    std::optional<std::string_view> read_string() {
        const auto length = cursor_.read<std::uint64_t>();
        if (!length) return std::nullopt;
        return cursor_.read_text(*length);
    }

    Result<GgufType> read_type(std::string_view key) {
        const auto raw = cursor_.read<std::uint32_t>();
        if (!raw) return cut_short(fmt::format("metadata '{}'", printable(key)));
        if (*raw >= type_names.size()) {
            return bad_input("{}: metadata '{}' has unknown value type {}; the header is damaged", path_,
                             printable(key), *raw);
        }
        return static_cast<GgufType>(*raw);
    }

    Status read_key_value(std::uint64_t index) {
        const auto key = read_string();
        if (!key) return cut_short(fmt::format("the name of metadata entry {}", index));
        GgufValue value;
        DS_ASSIGN(value.type, read_type(*key));
        if (value.type == GgufType::array) {
            value.is_array = true;
            DS_ASSIGN(value.type, read_type(*key));
            if (value.type == GgufType::array)
                return bad_input("{}: metadata '{}' is an array of arrays, which is not supported", path_,
                                 printable(*key));
            const auto count = cursor_.read<std::uint64_t>();
            if (!count) return cut_short(fmt::format("metadata '{}'", printable(*key)));
            value.count = *count;
        }
        const std::size_t begin = cursor_.position();
        if (!skip_elements(value)) return cut_short(fmt::format("metadata '{}'", printable(*key)));
        value.payload = out_.bytes().subspan(begin, cursor_.position() - begin);
        if (!out_.values_.emplace(*key, value).second)
            return bad_input("{}: metadata '{}' appears twice", path_, printable(*key));
        return {};
    }

    bool skip_elements(const GgufValue& value) {
        const std::uint64_t size = type_sizes[type_index(value.type)];
        if (size != 0) {
            const auto bytes = checked_product(size, value.count);
            return bytes && cursor_.skip(*bytes);
        }
        for (std::uint64_t i = 0; i < value.count; ++i) {
            if (!read_string()) return false;
        }
        return true;
    }

    Status read_alignment() {
        DS_ASSIGN(const auto alignment, out_.integer("general.alignment"));
        if (!alignment) return {};
        const auto value = static_cast<std::uint64_t>(*alignment);
        if (*alignment <= 0 || !std::has_single_bit(value) || value > max_alignment)
            return bad_input("{}: general.alignment is {}, expected a power of two", path_, *alignment);
        alignment_ = value;
        return {};
    }

    Status read_tensor_info(std::uint64_t index) {
        const auto name = read_string();
        const auto dimensions = name ? cursor_.read<std::uint32_t>() : std::nullopt;
        if (!dimensions) return cut_short(fmt::format("the description of tensor {}", index));
        if (*dimensions < 1 || *dimensions > max_dimensions) {
            return bad_input("{}: tensor '{}' has {} dimensions, expected 1 to {}", path_, printable(*name),
                             *dimensions, max_dimensions);
        }
        GgufTensor tensor;
        tensor.info.name = *name;
        tensor.info.shape.resize(*dimensions);
        for (std::uint32_t d = 0; d < *dimensions; ++d) {
            const auto extent = read_as_integer<std::uint64_t>(cursor_);
            if (!extent || *extent == 0)
                return bad_input("{}: tensor '{}' has an invalid or missing dimension {}", path_,
                                 printable(*name), d);
            // The file stores the fastest-varying dimension first.
            tensor.info.shape[*dimensions - 1 - d] = *extent;
        }
        const auto type = cursor_.read<std::uint32_t>();
        const auto offset = cursor_.read<std::uint64_t>();
        if (!type || !offset)
            return cut_short(fmt::format("the description of tensor '{}'", printable(*name)));
        DS_TRY(set_type(tensor, *type));
        pending_.push_back({tensor.info.name, *offset});
        if (!out_.tensors_.emplace(*name, std::move(tensor)).second)
            return bad_input("{}: tensor '{}' appears twice", path_, printable(*name));
        return {};
    }

    Status set_type(GgufTensor& tensor, std::uint32_t id) {
        const std::string name = printable(tensor.info.name);
        tensor.type = find_gguf_tensor_type(id);
        if (tensor.type == nullptr || tensor.type->dequantise == nullptr) {
            std::string known;
            for (const TensorType& type : readable_tensor_types())
                known += (known.empty() ? "" : ", ") + std::string(type.name);
            const std::string found =
                tensor.type == nullptr ? fmt::format("number {}", id) : std::string(tensor.type->name);
            return bad_input("{}: tensor '{}' has type {}, which this version does not read (it reads {})",
                             path_, name, found, known);
        }
        const auto columns = static_cast<std::uint64_t>(tensor.info.shape.back());
        if (columns % tensor.type->block_elements != 0) {
            return bad_input(
                "{}: tensor '{}' has rows of {} elements, which is not a multiple of {}'s block of {}", path_,
                name, columns, tensor.type->name, tensor.type->block_elements);
        }
        std::optional<std::uint64_t> bytes =
            checked_product(columns / tensor.type->block_elements, tensor.type->block_bytes);
        for (std::size_t d = 0; bytes && d + 1 < tensor.info.shape.size(); ++d)
            bytes = checked_product(*bytes, static_cast<std::uint64_t>(tensor.info.shape[d]));
        if (!bytes) return bad_input("{}: tensor '{}' is too large for any file", path_, name);
        tensor.info.type = tensor.type->name;
        tensor.info.bytes = *bytes;
        return {};
    }

    Status locate_tensors() {
        const auto bytes = out_.bytes();
        const std::uint64_t start = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
        for (const Pending& pending : pending_) {
            GgufTensor& tensor = out_.tensors_.find(pending.name)->second;
            if (pending.offset % alignment_ != 0) {
                return bad_input(
                    "{}: tensor '{}' starts at offset {}, which is not a multiple of the alignment {}", path_,
                    printable(pending.name), pending.offset, alignment_);
            }
            const auto begin = checked_sum(start, pending.offset);
            const auto end = begin ? checked_sum(*begin, tensor.info.bytes) : std::nullopt;
            if (!end)
                return bad_input("{}: tensor '{}' has the invalid offset {}", path_, printable(pending.name),
                                 pending.offset);
            if (*end > bytes.size()) {
                return bad_input(
                    "{}: tensor '{}' needs {} bytes of file, {} are present; the file is truncated, "
                    "fetch it again",
                    path_, printable(pending.name), *end, bytes.size());
            }
            tensor.data = bytes.data() + *begin;
        }
        return {};
    }

    GgufFile& out_;
    const std::string& path_;
    ByteCursor cursor_;
    std::uint64_t tensor_count_ = 0;
    std::uint64_t value_count_ = 0;
    std::uint64_t alignment_ = default_alignment;
    std::vector<Pending> pending_;
};

Result<GgufFile> GgufFile::open_part(const std::string& path) {
    GgufFile out;
    DS_ASSIGN(auto file, MappedFile::open(path, "a GGUF file"));
    out.files_.push_back(std::move(file));
    DS_TRY(Parser(out).run());
    return out;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
    DS_ASSIGN(GgufFile out, open_part(path));
    DS_ASSIGN(const auto count, out.integer(split_count));
    if (count.value_or(1) <= 1) return out;
    DS_ASSIGN(const auto number, out.integer(split_number));
    const std::int64_t own = number.value_or(0);
    const std::string stem = without_split_ending(path);
    if (path != stem + split_ending(own, *count))
        return bad_input("{}: is part {} of {} of a model, but its name does not end in {}; rename it", path,
                         own + 1, *count, split_ending(own, *count));
    if (own != 0)
        return bad_input("{}: is part {} of {} of a model; name the first, {}", path, own + 1, *count,
                         stem + split_ending(0, *count));
    for (std::int64_t i = 1; i < *count; ++i) {
        const std::string name = stem + split_ending(i, *count);
        if (::access(name.c_str(), F_OK) != 0)
            return bad_input("{}: is missing; {} is part 1 of {}, which belong in one folder", name, path,
                             *count);
        DS_ASSIGN(GgufFile part, open_part(name));
        DS_ASSIGN(const auto found, part.integer(split_number));
        if (found.value_or(-1) != i)
            return bad_input("{}: metadata '{}' is {}, expected {}: it is not part {} of {}", name,
                             split_number, found.value_or(-1), i, i + 1, path);
        DS_TRY(out.add_part(std::move(part)));
    }
    DS_ASSIGN(const auto tensors, out.integer("split.tensors.count"));
    if (tensors && *tensors != static_cast<std::int64_t>(out.tensors_.size()))
        return bad_input("{}: 'split.tensors.count' is {}, but its {} parts hold {} tensors", path, *tensors,
                         *count, out.tensors_.size());
    return out;
}

std::vector<std::string> gguf_parts(const std::string& path) {
    const std::string stem = without_split_ending(path);
    std::vector<std::string> out = {path};
    if (stem == path) return out;
    const std::int64_t count = std::stoi(path.substr(path.size() - 10, 5));
    for (std::int64_t i = 1; i < count; ++i) out.push_back(stem + split_ending(i, count));
    return out;
}

std::string gguf_stem(const std::string& path) {
    const std::string stem = without_split_ending(path);
    return stem == path && path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : stem;
}

Status GgufFile::add_part(GgufFile part) {
    for (auto& [name, tensor] : part.tensors_)
        if (!tensors_.emplace(name, std::move(tensor)).second)
            return bad_input("{}: tensor '{}' is in another part, too", part.path(), printable(name));
    files_.push_back(std::move(part.files_.front()));
    return {};
}

std::vector<const MappedFile*> GgufFile::files() const {
    std::vector<const MappedFile*> out;
    for (const auto& file : files_) out.push_back(file.get());
    return out;
}

nlohmann::json GgufFile::values_below(std::string_view prefix) const {
    nlohmann::json out = nlohmann::json::object();
    for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix); ++at) {
        const GgufValue& value = at->second;
        nlohmann::json& to = out[at->first.substr(prefix.size())];
        ByteCursor cursor(value.payload);
        if (value.is_array)
            to = describe(value);
        else if (value.type == GgufType::string)
            to = text(at->first)->value_or("");
        else if (value.type == GgufType::boolean)
            to = value.payload[0] != 0;
        else if (value.type == GgufType::f32 || value.type == GgufType::f64)
            to = number(at->first)->value_or(0);
        else
            to = next_integer(cursor, value.type).value_or(0);
    }
    return out;
}

const GgufValue* GgufFile::find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

Result<std::optional<std::string>> GgufFile::text(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<std::string>();
    if (value->is_array || value->type != GgufType::string)
        return bad_input("{}: metadata '{}' is {}, expected a string", path(), key, describe(*value));
    ByteCursor cursor(value->payload);
    const auto length = cursor.read<std::uint64_t>();
    return std::optional<std::string>(*cursor.read_text(*length));
}

Result<std::optional<std::int64_t>> GgufFile::integer(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<std::int64_t>();
    if (!is_integer(value->type) || value->count == 0)
        return bad_input("{}: metadata '{}' is {}, expected an integer", path(), key, describe(*value));
    ByteCursor cursor(value->payload);
    const auto first = next_integer(cursor, value->type);
    if (!first) return bad_input("{}: metadata '{}' is out of range", path(), key);
    for (std::uint64_t i = 1; i < value->count; ++i) {
        if (next_integer(cursor, value->type) != first) {
            return bad_input(
                "{}: metadata '{}' differs between layers; only models with equal layers are supported",
                path(), key);
        }
    }
    return std::optional<std::int64_t>(*first);
}

Result<std::optional<double>> GgufFile::number(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<double>();
    ByteCursor cursor(value->payload);
    if (!value->is_array && value->type == GgufType::f32) return std::optional<double>(*cursor.read<float>());
    if (!value->is_array && value->type == GgufType::f64)
        return std::optional<double>(*cursor.read<double>());
    return bad_input("{}: metadata '{}' is {}, expected a floating-point number", path(), key,
                     describe(*value));
}

Result<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<bool>();
    if (value->is_array || value->type != GgufType::boolean)
        return bad_input("{}: metadata '{}' is {}, expected a bool", path(), key, describe(*value));
    return std::optional<bool>(value->payload[0] != 0);
}

Result<std::optional<std::vector<std::string>>> GgufFile::texts(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<std::vector<std::string>>();
    if (!value->is_array || value->type != GgufType::string)
        return bad_input("{}: metadata '{}' is {}, expected an array of strings", path(), key,
                         describe(*value));
    std::vector<std::string> out;
    out.reserve(value->count);
    ByteCursor cursor(value->payload);
    for (std::uint64_t i = 0; i < value->count; ++i) {
        const auto length = cursor.read<std::uint64_t>();
        out.emplace_back(*cursor.read_text(*length));
    }
    return std::optional(std::move(out));
}

Result<std::optional<std::vector<std::int64_t>>> GgufFile::integers(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
    if (!value->is_array || !is_integer(value->type))
        return bad_input("{}: metadata '{}' is {}, expected an array of integers", path(), key,
                         describe(*value));
    std::vector<std::int64_t> out;
    out.reserve(value->count);
    ByteCursor cursor(value->payload);
    for (std::uint64_t i = 0; i < value->count; ++i) {
        const auto element = next_integer(cursor, value->type);
        if (!element) return bad_input("{}: metadata '{}' element {} is too large", path(), key, i);
        out.push_back(*element);
    }
    return std::optional(std::move(out));
}

Result<std::optional<std::vector<float>>> GgufFile::floats(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<std::vector<float>>();
    if (!value->is_array || value->type != GgufType::f32)
        return bad_input("{}: metadata '{}' is {}, expected an array of f32", path(), key, describe(*value));
    std::vector<float> out(static_cast<std::size_t>(value->count));
    if (!out.empty()) std::memcpy(out.data(), value->payload.data(), out.size() * sizeof(float));
    return std::optional(std::move(out));
}

}  // namespace draftscope
