#include "engine/formats/gguf.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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

/// Reads one element; nullopt for a u64 that does not fit.
template <typename T>
std::optional<std::int64_t> read_as_integer(ByteCursor& cursor) {
    const auto value = cursor.read<T>();
    if (!value || !std::in_range<std::int64_t>(*value)) return std::nullopt;
    return static_cast<std::int64_t>(*value);
}

struct ValueType {
    std::string_view name;
    std::uint64_t size;  ///< bytes of one element; 0 = variable (length prefix and bytes)
    std::optional<std::int64_t> (*read_integer)(ByteCursor&) = nullptr;  ///< null: not an integer
};

template <typename T>
constexpr ValueType integer_type(std::string_view name) {
    return {name, sizeof(T), read_as_integer<T>};
}

/// By GgufType.
constexpr std::array value_types = {
    integer_type<std::uint8_t>("u8"),
    integer_type<std::int8_t>("i8"),
    integer_type<std::uint16_t>("u16"),
    integer_type<std::int16_t>("i16"),
    integer_type<std::uint32_t>("u32"),
    integer_type<std::int32_t>("i32"),
    ValueType{"f32", 4},
    ValueType{"bool", 1},
    ValueType{"string", 0},
    ValueType{"array", 0},
    integer_type<std::uint64_t>("u64"),
    integer_type<std::int64_t>("i64"),
    ValueType{"f64", 8},
};

const ValueType& type_of(const GgufValue& value) {
    return value_types[static_cast<std::size_t>(value.type)];
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
    const std::string_view name = type_of(value).name;
    return value.is_array ? fmt::format("an array of {} {}", value.count, name) : fmt::format("one {}", name);
}

}  // namespace

/// Parses the header in one pass. A tolerant parser keeps what precedes the first damage.
class GgufFile::Parser {
  public:
    Parser(GgufFile& out, bool tolerant)
        : out_(out),
          path_(out.path()),
          bytes_(out.file_->bytes()),
          cursor_(out.file_->bytes()),
          tolerant_(tolerant) {}

    Status run() {
        DS_TRY(read_header());
        if (const Status read = read_entries(); !read.ok() && !tolerant_) return read;
        return locate_tensors();
    }

  private:
    Status read_entries() {
        for (std::uint64_t i = 0; i < value_count_; ++i) DS_TRY(read_key_value(i));
        DS_TRY(read_alignment());
        for (std::uint64_t i = 0; i < tensor_count_; ++i) DS_TRY(read_tensor_info(i));
        return {};
    }

    struct Pending {
        StoredTensor* tensor;
        std::uint64_t offset;
    };

    Error cut_short(std::string_view what) const {
        return bad_input("{}: ends inside {} (at byte {} of {}); the file is incomplete, fetch it again",
                         path_, what, cursor_.position(), bytes_.size());
    }

    Status read_header() {
        const auto magic = cursor_.read_text(std::min<std::size_t>(4, bytes_.size()));
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
        if (!tolerant_ && *values > cursor_.remaining() / min_key_value_bytes)
            return bad_input("{}: the header lists {} metadata entries, more than the file can hold", path_,
                             *values);
        if (!tolerant_ && *tensors > cursor_.remaining() / min_tensor_info_bytes)
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
        if (*raw >= value_types.size()) {
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
        value.payload = bytes_.subspan(begin, cursor_.position() - begin);
        if (!out_.values_.emplace(*key, value).second)
            return bad_input("{}: metadata '{}' appears twice", path_, printable(*key));
        return {};
    }

    bool skip_elements(const GgufValue& value) {
        const std::uint64_t size = type_of(value).size;
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
        StoredTensor tensor;
        tensor.file = out_.file_.get();
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
        if (const Status typed = set_type(tensor, *type); !typed.ok()) return tolerant_ ? Status() : typed;
        StoredTensor* const added = out_.tensors_.add(std::move(tensor));
        if (added == nullptr) return bad_input("{}: tensor '{}' appears twice", path_, printable(*name));
        pending_.push_back({added, *offset});
        return {};
    }

    Status set_type(StoredTensor& tensor, std::uint32_t id) {
        const std::string name = printable(tensor.info.name);
        tensor.type = find_gguf_tensor_type(id);
        const bool listed = tensor.type != nullptr && tolerant_;
        if (!listed &&
            (tensor.type == nullptr || tensor.type->dequantise == nullptr || !tensor.type->in_gguf)) {
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
        const auto bytes = stored_bytes(*tensor.type, tensor.info.shape);
        if (!bytes) return bad_input("{}: tensor '{}' is too large for any file", path_, name);
        tensor.info.type = tensor.type->name;
        tensor.info.bytes = *bytes;
        return {};
    }

    Status locate_tensors() {
        const std::uint64_t start = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
        for (const Pending& pending : pending_) {
            StoredTensor& tensor = *pending.tensor;
            const std::string name = printable(tensor.info.name);
            const auto begin = checked_sum(start, pending.offset);
            const auto end = begin ? checked_sum(*begin, tensor.info.bytes) : std::nullopt;
            if (tolerant_ && (!end || *end > bytes_.size())) continue;
            if (pending.offset % alignment_ != 0) {
                return bad_input(
                    "{}: tensor '{}' starts at offset {}, which is not a multiple of the alignment {}", path_,
                    name, pending.offset, alignment_);
            }
            if (!end)
                return bad_input("{}: tensor '{}' has the invalid offset {}", path_, name, pending.offset);
            if (*end > bytes_.size()) {
                return bad_input(
                    "{}: tensor '{}' needs {} bytes of file, {} are present; the file is truncated, "
                    "fetch it again",
                    path_, name, *end, bytes_.size());
            }
            tensor.data = bytes_.data() + *begin;
        }
        return {};
    }

    GgufFile& out_;
    const std::string& path_;
    const std::span<const std::uint8_t> bytes_;
    ByteCursor cursor_;
    const bool tolerant_;
    std::uint64_t tensor_count_ = 0;
    std::uint64_t value_count_ = 0;
    std::uint64_t alignment_ = default_alignment;
    std::vector<Pending> pending_;
};

Result<GgufFile> GgufFile::open_part(const std::string& path, bool tolerant) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a GGUF file"));
    GgufFile out(std::move(file));
    DS_TRY(Parser(out, tolerant).run());
    return out;
}

Result<GgufFile> GgufFile::open_damaged(const std::string& path, Notes& problems) {
    Result<GgufFile> complete = open(path);
    if (complete.ok()) return complete;
    DS_ASSIGN(GgufFile out, open_part(path, true));
    problems.push_back(complete.error().message);
    return out;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
    DS_ASSIGN(GgufFile out, open_part(path));
    DS_ASSIGN(const auto count, out.integer(split_count));
    if (count.value_or(1) <= 1) return out;
    DS_ASSIGN(const auto number, out.integer(split_number));
    const std::int64_t split_index = number.value_or(0);
    const std::string stem = without_split_ending(path);
    if (path != stem + split_ending(split_index, *count))
        return bad_input("{}: is part {} of {} of a model, but its name does not end in {}; rename it", path,
                         split_index + 1, *count, split_ending(split_index, *count));
    if (split_index != 0)
        return bad_input("{}: is part {} of {} of a model; name the first, {}", path, split_index + 1, *count,
                         stem + split_ending(0, *count));
    for (std::int64_t i = 1; i < *count; ++i) {
        const std::string name = stem + split_ending(i, *count);
        if (::access(name.c_str(), F_OK) != 0)
            return bad_input("{}: is missing; {} is part 1 of {}, which belong in one folder", name, path,
                             *count);
        DS_ASSIGN(const GgufFile part, open_part(name));
        DS_ASSIGN(const auto found, part.integer(split_number));
        if (found.value_or(-1) != i)
            return bad_input("{}: metadata '{}' is {}, expected {}: it is not part {} of {}", name,
                             split_number, found.value_or(-1), i, i + 1, path);
        DS_TRY(out.add_part(part));
    }
    DS_ASSIGN(const auto tensors, out.integer("split.tensors.count"));
    if (tensors && *tensors != static_cast<std::int64_t>(out.tensors_.names().size()))
        return bad_input("{}: 'split.tensors.count' is {}, but its {} parts hold {} tensors", path, *tensors,
                         *count, out.tensors_.names().size());
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

Status GgufFile::add_part(const GgufFile& part) {
    for (const std::string& name : part.tensors_.names())
        if (tensors_.add(*part.tensors_.find_stored(name)) == nullptr)
            return bad_input("{}: tensor '{}' is in another part, too", part.path(), printable(name));
    tensors_.share_files(part.tensors_);
    return {};
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
            to = type_of(value).read_integer(cursor).value_or(0);
    }
    return out;
}

template <typename T, typename Matches, typename Decode>
Result<std::optional<T>> GgufFile::read(std::string_view key, std::string_view expected, Matches matches,
                                        Decode decode) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::optional<T>();
    const GgufValue& value = found->second;
    if (!matches(value))
        return bad_input("{}: metadata '{}' is {}, expected {}", path(), key, describe(value), expected);
    ByteCursor cursor(value.payload);
    DS_ASSIGN(T out, decode(value, cursor));
    return std::optional<T>(std::move(out));
}

namespace {

/// Matches one value, or an array of values, of a type.
auto one(GgufType type) {
    return [type](const GgufValue& value) { return !value.is_array && value.type == type; };
}
auto array_of(GgufType type) {
    return [type](const GgufValue& value) { return value.is_array && value.type == type; };
}

std::string read_text(ByteCursor& cursor) {
    const auto length = cursor.read<std::uint64_t>();
    return std::string(*cursor.read_text(*length));
}

}  // namespace

Result<std::optional<std::string>> GgufFile::text(std::string_view key) const {
    return read<std::string>(
        key, "a string", one(GgufType::string),
        [](const GgufValue&, ByteCursor& cursor) -> Result<std::string> { return read_text(cursor); });
}

Result<std::optional<std::int64_t>> GgufFile::integer(std::string_view key) const {
    const auto is_integer = [](const GgufValue& value) {
        return type_of(value).read_integer != nullptr && value.count > 0;
    };
    const auto decode = [&](const GgufValue& value, ByteCursor& cursor) -> Result<std::int64_t> {
        const auto first = type_of(value).read_integer(cursor);
        if (!first) return bad_input("{}: metadata '{}' is out of range", path(), key);
        for (std::uint64_t i = 1; i < value.count; ++i)
            if (type_of(value).read_integer(cursor) != first)
                return bad_input(
                    "{}: metadata '{}' differs between layers; only models with equal layers are supported",
                    path(), key);
        return *first;
    };
    return read<std::int64_t>(key, "an integer", is_integer, decode);
}

Result<std::optional<double>> GgufFile::number(std::string_view key) const {
    const auto is_number = [](const GgufValue& value) {
        return one(GgufType::f32)(value) || one(GgufType::f64)(value);
    };
    return read<double>(key, "a floating-point number", is_number,
                        [](const GgufValue& value, ByteCursor& cursor) -> Result<double> {
                            if (value.type == GgufType::f64) return *cursor.read<double>();
                            return *cursor.read<float>();
                        });
}

Result<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
    return read<bool>(
        key, "a bool", one(GgufType::boolean),
        [](const GgufValue& value, ByteCursor&) -> Result<bool> { return value.payload[0] != 0; });
}

Result<std::optional<std::vector<std::string>>> GgufFile::texts(std::string_view key) const {
    using Texts = std::vector<std::string>;
    return read<Texts>(key, "an array of strings", array_of(GgufType::string),
                       [](const GgufValue& value, ByteCursor& cursor) -> Result<Texts> {
                           Texts out(value.count);
                           for (std::string& text : out) text = read_text(cursor);
                           return out;
                       });
}

Result<std::optional<std::vector<std::int64_t>>> GgufFile::integers(std::string_view key) const {
    using Integers = std::vector<std::int64_t>;
    const auto are_integers = [](const GgufValue& value) {
        return value.is_array && type_of(value).read_integer != nullptr;
    };
    const auto decode = [&](const GgufValue& value, ByteCursor& cursor) -> Result<Integers> {
        Integers out;
        out.reserve(value.count);
        for (std::uint64_t i = 0; i < value.count; ++i) {
            const auto element = type_of(value).read_integer(cursor);
            if (!element) return bad_input("{}: metadata '{}' element {} is too large", path(), key, i);
            out.push_back(*element);
        }
        return out;
    };
    return read<Integers>(key, "an array of integers", are_integers, decode);
}

Result<std::optional<std::vector<float>>> GgufFile::floats(std::string_view key) const {
    using Floats = std::vector<float>;
    return read<Floats>(key, "an array of f32", array_of(GgufType::f32),
                        [](const GgufValue& value, ByteCursor&) -> Result<Floats> {
                            Floats out(value.count);
                            decode_f32(value.payload.data(), static_cast<std::int64_t>(out.size()),
                                       out.data());
                            return out;
                        });
}

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
