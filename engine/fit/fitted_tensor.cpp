#include "engine/fit/fitted_tensor.h"

#include <algorithm>
#include <cmath>

#include "base/numel.h"
#include "kernels/ops/float16.h"

namespace draftscope::fit {
namespace {

template <typename T>
std::vector<std::byte> to_bytes(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

template <typename T>
std::vector<std::byte> to_bytes_as(std::span<const std::int32_t> values) {
    return to_bytes(std::vector<T>(values.begin(), values.end()));
}

bool all_below(std::span<const std::int32_t> values, std::int32_t limit) {
    return std::all_of(values.begin(), values.end(),
                       [&](std::int32_t value) { return value >= 0 && value < limit; });
}

/// A matrix as an artefact stores it. 64 columns share a scale.
struct Int8Matrix {
    std::vector<std::int8_t> values;
    std::vector<float> scales;  ///< [rows, groups], rounded to f16
    int groups = 0;
};

Int8Matrix to_int8(const Dense& dense) {
    constexpr int group = 64;
    Int8Matrix out;
    out.groups = (dense.cols + group - 1) / group;
    out.values.resize(dense.values().size());
    out.scales.resize(numel(dense.rows, out.groups));
    for (int r = 0; r < dense.rows; ++r)
        for (int g = 0; g < out.groups; ++g) {
            const int first = g * group, last = std::min(first + group, dense.cols);
            const float* row = dense.row(r).data();
            float max_abs = 0;
            for (int c = first; c < last; ++c) max_abs = std::max(max_abs, std::abs(row[c]));
            const float scale = kernels::f16_to_float(kernels::float_to_f16(max_abs / 127));
            out.scales[numel(r, out.groups) + g] = scale;
            for (int c = first; c < last && scale > 0; ++c)
                out.values[numel(r, dense.cols) + c] =
                    static_cast<std::int8_t>(std::clamp(std::lround(row[c] / scale), -127l, 127l));
        }
    return out;
}

}  // namespace

FittedTensor f16_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
    std::vector<std::uint16_t> stored(values.size());
    std::transform(values.begin(), values.end(), stored.begin(), kernels::float_to_f16);
    return {std::move(name), "F16", std::move(shape), to_bytes(stored)};
}

FittedTensor f16_tensor(std::string name, const Dense& values) {
    return f16_tensor(std::move(name), {values.rows, values.cols}, values.values());
}

FittedTensor f16_tensor(std::string name, const kernels::Matrix& matrix, int rows) {
    FittedTensor tensor{std::move(name), "F16", {rows, matrix.k()}, {}};
    std::vector<float> row(matrix.k());
    for (int r = 0; r < rows; ++r) {
        matrix.unpack_row(r, row);
        const std::vector<std::byte> bytes = f16_tensor({}, {}, row).bytes;
        tensor.bytes.insert(tensor.bytes.end(), bytes.begin(), bytes.end());
    }
    return tensor;
}

FittedTensor integer_tensor(std::string name, std::vector<std::int64_t> shape,
                            std::span<const std::int32_t> values) {
    if (all_below(values, 1 << 8))
        return {std::move(name), "U8", std::move(shape), to_bytes_as<std::uint8_t>(values)};
    if (all_below(values, 1 << 16))
        return {std::move(name), "U16", std::move(shape), to_bytes_as<std::uint16_t>(values)};
    return {std::move(name), "I32", std::move(shape), to_bytes_as<std::int32_t>(values)};
}

std::vector<FittedTensor> int8_tensors(const std::string& name, const Dense& values) {
    const Int8Matrix stored = to_int8(values);
    std::vector<FittedTensor> tensors;
    tensors.push_back({name, "I8", {values.rows, values.cols}, to_bytes(stored.values)});
    tensors.push_back(f16_tensor(name + ".scales", {values.rows, stored.groups}, stored.scales));
    return tensors;
}

void round_to_f16(std::span<float> values) {
    for (float& value : values) value = kernels::f16_to_float(kernels::float_to_f16(value));
}

void round_to_stored(Dense& values, bool int8) {
    if (!int8) return round_to_f16(values.values());
    const Int8Matrix stored = to_int8(values);
    for (int r = 0; r < values.rows; ++r)
        for (int c = 0; c < values.cols; ++c)
            values.row(r)[c] = static_cast<float>(stored.values[numel(r, values.cols) + c]) *
                               stored.scales[numel(r, stored.groups) + c / 64];
}

std::vector<TensorToSave> views(std::span<const FittedTensor> tensors) {
    std::vector<TensorToSave> result;
    for (const FittedTensor& tensor : tensors) result.push_back(tensor.view());
    return result;
}

}  // namespace draftscope::fit
