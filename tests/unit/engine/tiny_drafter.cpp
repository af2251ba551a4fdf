#include "tests/unit/engine/tiny_drafter.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/tiny_checkpoint.h"

namespace draftscope::testing {

TinyEagle2::TinyEagle2(const ModelConfig& target, std::uint64_t seed) {
    TinyEagleOptions options;
    options.heads = target.heads;
    options.kv_heads = target.kv_heads;
    options.head_dim = target.head_dim;
    std::vector<NamedTensor> tensors = tiny_eagle2_tensors(seed, target, options);
    for (NamedTensor& tensor : tensors) {
        const bool is_norm = tensor.shape.size() == 1, is_fc = tensor.name == "fc.weight";
        for (float& value : tensor.values) value *= is_norm ? 1.0f : is_fc ? 0.3f : 0.6f;
        const auto width = static_cast<std::size_t>(tensor.shape.back());
        for (std::size_t r = 0; is_fc && r < tensor.values.size() / width; ++r)
            tensor.values[r * width + r] += 1.0f;
    }
    const Status written = write_safetensors(folder_.file("model.safetensors"), tensors);
    if (!written.ok()) ADD_FAILURE() << written.error().message;
    std::ofstream(folder_.file("config.json")) << tiny_eagle2_config(target, options);
}

}  // namespace draftscope::testing
