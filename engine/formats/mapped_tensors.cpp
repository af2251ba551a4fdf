#include "engine/formats/mapped_tensors.h"

#include <array>
#include <cassert>
#include <cstring>

#include "engine/formats/dequant.h"

namespace draftscope {
namespace {

template <typename T>
void as_floats(const std::uint8_t* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<float>(load_unaligned<T>(data + i * sizeof(T)));
}

template <typename T>
void as_integers(const std::uint8_t* data, std::int64_t count, std::int64_t* out) {
    for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<std::int64_t>(load_unaligned<T>(data + i * sizeof(T)));
}

constexpr std::array data_types = {
    DataType{"F64", 8, as_floats<double>, nullptr},
    DataType{"F32", 4, decode_f32, nullptr},
    DataType{"F16", 2, decode_f16, nullptr},
    DataType{"BF16", 2, decode_bf16, nullptr},
    DataType{"I64", 8, as_floats<std::int64_t>, as_integers<std::int64_t>},
    DataType{"I32", 4, as_floats<std::int32_t>, as_integers<std::int32_t>},
    DataType{"I16", 2, as_floats<std::int16_t>, as_integers<std::int16_t>},
    DataType{"U16", 2, as_floats<std::uint16_t>, as_integers<std::uint16_t>},
    DataType{"I8", 1, as_floats<std::int8_t>, as_integers<std::int8_t>},
    DataType{"U8", 1, as_floats<std::uint8_t>, as_integers<std::uint8_t>},
    DataType{"BOOL", 1, as_floats<std::uint8_t>, as_integers<std::uint8_t>},
};

}  // namespace

const DataType* find_data_type(std::string_view name) {
    for (const DataType& type : data_types) {
        if (type.name == name) return &type;
    }
    return nullptr;
}

const TensorInfo* MappedTensors::find(std::string_view name) const {
    const Entry* entry = entries_.find(name);
    return entry == nullptr ? nullptr : &entry->info;
}

void MappedTensors::read_row(const TensorInfo& tensor, std::int64_t row, float* out) const {
    assert(row >= 0 && row < tensor.rows());
    find_data_type(tensor.type)->floats(stored_row(tensor, row), tensor.cols(), out);
}

Result<std::vector<std::int64_t>> MappedTensors::read_integers(std::string_view name) const {
    const Entry* entry = entries_.find(name);
    if (entry == nullptr) return bad_input("{}: tensor '{}' is missing", path(), name);
    if (entry->type->integers == nullptr) {
        return bad_input("{}: tensor '{}' has type {}, expected integers", path(), name, entry->info.type);
    }
    const std::uint64_t count = entry->info.bytes / entry->type->bytes;
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    entry->type->integers(entry->data, static_cast<std::int64_t>(count), out.data());
    return out;
}

std::span<const std::uint8_t> MappedTensors::stored(const TensorInfo& tensor) const {
    const Entry* entry = entries_.find(tensor.name);
    if (entry == nullptr) return {};
    return {entry->data, static_cast<std::size_t>(entry->info.bytes)};
}

const std::uint8_t* MappedTensors::stored_row(const TensorInfo& tensor, std::int64_t row) const {
    const Entry* entry = entries_.find(tensor.name);
    if (entry == nullptr) return nullptr;
    return entry->data + row * static_cast<std::int64_t>(entry->type->bytes) * tensor.cols();
}

std::string MappedTensors::metadata(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? std::string() : found->second;
}

std::optional<std::uint64_t> MappedTensors::tensor_bytes(const DataType& type,
                                                         std::vector<std::int64_t>& shape) {
    std::optional<std::uint64_t> bytes = type.bytes;
    for (const std::int64_t extent : shape)
        bytes = bytes ? checked_product(*bytes, static_cast<std::uint64_t>(extent)) : std::nullopt;
    if (shape.empty()) shape.push_back(1);
    return bytes;
}

bool MappedTensors::add(TensorInfo info, const DataType& type, const std::uint8_t* data) {
    std::string name = info.name;
    return entries_.add(std::move(name), {std::move(info), &type, data});
}

}  // namespace draftscope
