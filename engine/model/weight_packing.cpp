#include "engine/model/weight_packing.h"

#include <fmt/ranges.h>

#include <algorithm>

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
    return kernels::Matrix::pack(exec, precision, rows, cols, [&](int row, float* out) {
        auto part = stack.end() - 1;
        while (part->first > row) --part;
        source.read_row(*part->info, row - part->first, out);
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
