#include "engine/model/weight_packing.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/model/int4_rows.h"
#include "kernels/stored_rows.h"

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
                                     int cols, std::string_view reason) {
    struct Part {
        const TensorInfo* info;
        int first;
    };
    std::vector<Part> stack;
    int rows = 0;
    for (const StackedTensor& part : parts) {
        DS_ASSIGN(const TensorInfo* info, require_tensor(source, part.name, {part.rows, cols}, reason));
        stack.push_back({info, rows});
        rows += part.rows;
    }
    const auto part_of = [&](int row) {
        auto part = stack.end() - 1;
        while (part->first > row) --part;
        return part;
    };
    const auto read = [&](int row, float* out) {
        const auto part = part_of(row);
        source.read_row(*part->info, row - part->first, out);
    };
    const bool moved = precision == kernels::Precision::bf16 &&
                       std::all_of(stack.begin(), stack.end(), [&](const Part& part) {
                           return part.info->type == "BF16" && source.stored_row(*part.info, 0) != nullptr;
                       });
    if (moved) {
        return kernels::pack_bf16(exec, rows, cols, [&](int row) {
            const auto part = part_of(row);
            return source.stored_row(*part->info, row - part->first);
        });
    }
    if (precision != kernels::Precision::int4)
        return kernels::Matrix::pack(exec, precision, rows, cols, read);
    const auto* stored = dynamic_cast<const Int4Rows*>(&source);
    return kernels::pack_int4(exec, rows, cols, read, [&](int row, const kernels::Int4Row& out) {
        const auto part = part_of(row);
        return stored != nullptr && stored->read_int4_row(*part->info, row - part->first, out);
    });
}

Result<std::vector<float>> read_vector(const WeightSource& source, const std::string& name, int size,
                                       std::string_view reason) {
    DS_ASSIGN(const TensorInfo* info, require_tensor(source, name, {size}, reason));
    std::vector<float> values(static_cast<std::size_t>(size));
    source.read_row(*info, 0, values.data());
    return values;
}

}  // namespace draftscope
