#include "engine/weights/weight_packing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "kernels/packing.h"

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

Result<kernels::Matrix> pack_stacked(kernels::Backend& backend, kernels::Precision precision,
                                     const WeightSource& source, std::span<const StackedTensor> parts,
                                     int cols, std::string_view reason) {
    struct Part {
        const TensorInfo* info;
        int first;
    };
    std::vector<Part> stack;
    std::vector<kernels::RandomRows> random;
    int rows = 0;
    bool all_bf16 = true, all_stored = true;
    for (const StackedTensor& part : parts) {
        DS_ASSIGN(const TensorInfo* info, require_tensor(source, part.name, {part.rows, cols}, reason));
        all_stored = all_stored && !source.stored(*info).empty();
        all_bf16 = all_bf16 && info->type == "BF16";
        if (const auto values = source.random_values(*info)) random.push_back({part.rows, *values});
        stack.push_back({info, rows});
        rows += part.rows;
    }
    if (random.size() == parts.size())
        if (auto made = kernels::pack_random(backend, cols, random)) return std::move(*made);
    const auto find_part = [&](int row) {
        auto part = stack.end() - 1;
        while (part->first > row) --part;
        return part;
    };
    const auto read = [&](int row, float* out) {
        const auto part = find_part(row);
        source.read_row(*part->info, row - part->first, out);
    };
    if (precision == kernels::Precision::bf16 && all_bf16 && all_stored) {
        return kernels::pack_bf16(backend, rows, cols, [&](int row) {
            const auto part = find_part(row);
            return source.stored_row(*part->info, row - part->first);
        });
    }
    if (precision != kernels::Precision::int4)
        return kernels::Matrix::pack(backend, precision, rows, cols, read);
    return kernels::pack_int4(backend.pool(), rows, cols, read, [&](int row, const kernels::Int4Row& out) {
        const auto part = find_part(row);
        return source.read_int4_row(*part->info, row - part->first, out);
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
