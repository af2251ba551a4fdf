#include "engine/weights/weight_packing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "engine/formats/dequant.h"
#include "kernels/pack_bf16.h"
#include "kernels/random_rows.h"

namespace draftscope {

Result<const TensorInfo*> require_tensor(const WeightSource& source, const std::string& name,
                                         std::initializer_list<std::int64_t> shape, std::string_view reason) {
    const std::string because = reason.empty() ? std::string() : fmt::format(" ({})", reason);
    const TensorInfo* info = source.find(name);
    if (info == nullptr) {
        return bad_input("{}: tensor '{}' is missing; expected shape [{}]{}", source.path(), name,
                         fmt::join(shape, ", "), because);
    }
    if (!std::equal(info->shape.begin(), info->shape.end(), shape.begin(), shape.end())) {
        return bad_input("{}: tensor '{}' has shape [{}], expected [{}]{}", source.path(), name,
                         fmt::join(info->shape, ", "), fmt::join(shape, ", "), because);
    }
    return info;
}

Result<kernels::Matrix> pack_stacked(kernels::Exec& exec, kernels::Precision precision,
                                     const WeightSource& source, std::span<const StackedTensor> parts,
                                     int cols, std::string_view reason,
                                     std::span<const std::span<const std::uint8_t>> preloaded) {
    struct Part {
        const TensorInfo* info;
        int first;
        std::ptrdiff_t offset;  ///< offset from the mapped bytes to the copied bytes
    };
    std::vector<Part> stack;
    std::vector<kernels::RandomRows> random;
    int rows = 0;
    bool all_bf16 = true, all_stored = true;
    for (const StackedTensor& part : parts) {
        DS_ASSIGN(const TensorInfo* info, require_tensor(source, part.name, {part.rows, cols}, reason));
        const std::span<const std::uint8_t> mapped = source.stored(*info);
        std::ptrdiff_t offset = 0;
        if (!preloaded.empty()) {
            assert(preloaded.size() == parts.size() && preloaded[stack.size()].size() == mapped.size());
            offset = reinterpret_cast<std::intptr_t>(preloaded[stack.size()].data()) -
                     reinterpret_cast<std::intptr_t>(mapped.data());
        }
        all_stored = all_stored && !mapped.empty();
        all_bf16 = all_bf16 && info->type == "BF16";
        if (const auto values = source.random_values(*info)) random.push_back({part.rows, *values});
        stack.push_back({info, rows, offset});
        rows += part.rows;
    }
    if (random.size() == parts.size())
        if (auto made = kernels::pack_random(exec, cols, random)) return std::move(*made);
    const auto find_part = [&](int row) {
        auto part = stack.end() - 1;
        while (part->first > row) --part;
        return part;
    };
    /// Bytes of a stored row.
    const auto row_bytes = [&](const Part& part, int row) {
        const auto mapped = reinterpret_cast<std::intptr_t>(source.stored_row(*part.info, row - part.first));
        return reinterpret_cast<const std::uint8_t*>(mapped + part.offset);
    };
    const auto read = [&](int row, float* out) {
        const auto part = find_part(row);
        if (all_stored)
            source.decode_row(*part->info, row_bytes(*part, row), out);
        else
            source.read_row(*part->info, row - part->first, out);
    };
    if (precision == kernels::Precision::bf16 && all_bf16 && all_stored) {
        return kernels::pack_bf16(exec, rows, cols, [&](int row) { return row_bytes(*find_part(row), row); });
    }
    if (precision != kernels::Precision::int4)
        return kernels::Matrix::pack(exec, precision, rows, cols, read);
    const auto* stored = dynamic_cast<const Int4Rows*>(&source);
    return kernels::pack_int4(exec, rows, cols, read, [&](int row, const kernels::Int4Row& out) {
        const auto part = find_part(row);
        return stored != nullptr && all_stored &&
               stored->decode_int4_row(*part->info, row_bytes(*part, row), out);
    });
}

Result<std::vector<float>> read_vector(const WeightSource& source, const std::string& name, int size,
                                       std::string_view reason) {
    DS_ASSIGN(const TensorInfo* info, require_tensor(source, name, {size}, reason));
    std::vector<float> values(size);
    source.read_row(*info, 0, values.data());
    return values;
}

}  // namespace draftscope
