#include "engine/formats/gguf_weights.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "engine/formats/tensor_index.h"

namespace draftscope {
namespace {

struct Entry {
    const GgufTensor* tensor;
    bool permuted;
    std::int64_t row_bytes;
};

class GgufWeights final : public WeightSource {
  public:
    GgufWeights(GgufFile file, int head_dim, bool permuted_qk) : file_(std::move(file)), head_dim_(head_dim) {
        for (const auto& [name, tensor] : file_.tensors()) {
            const bool is_qk = name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight");
            const std::int64_t blocks = tensor.info.cols() / tensor.type->block_elements;
            entries_.add(name, {&tensor, permuted_qk && is_qk, blocks * tensor.type->block_bytes});
        }
    }

    const std::string& path() const override { return file_.path(); }

    const TensorInfo* find(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        return entry == nullptr ? nullptr : &entry->tensor->info;
    }

    std::vector<std::string> names() const override { return entries_.names(); }

    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        assert(row >= 0 && row < tensor.rows());
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        const TensorType& type = *entry->tensor->type;
        type.dequantise(stored_row(tensor, row), tensor.cols() / type.block_elements, out);
    }

    bool read_int4_row(const TensorInfo& tensor, std::int64_t row,
                       const kernels::Int4Row& out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        return unpack_int4(*entry->tensor->type, stored_row(tensor, row), out);
    }

    std::vector<const MappedFile*> files() const override { return file_.files(); }
    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const override {
        const Entry* entry = entries_.find(tensor.name);
        if (entry == nullptr) return {};
        return {entry->tensor->data, static_cast<std::size_t>(entry->tensor->info.bytes)};
    }
    const std::uint8_t* stored_row(const TensorInfo& tensor, std::int64_t row) const override {
        const Entry* entry = entries_.find(tensor.name);
        if (entry == nullptr) return nullptr;
        const std::int64_t stored_row = entry->permuted ? interleaved_row(row, head_dim_) : row;
        return entry->tensor->data + stored_row * entry->row_bytes;
    }
    Result<std::vector<std::int64_t>> read_integers(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        if (entry == nullptr) return bad_input("{}: tensor '{}' is missing", path(), name);
        const GgufTensor& stored = *entry->tensor;
        const bool wide = stored.type->name == "I64";
        if (!wide && stored.type->name != "I32") {
            return bad_input("{}: tensor '{}' has type {}, expected integers", path(), name,
                             stored.type->name);
        }
        const std::size_t size = wide ? 8 : 4;
        std::vector<std::int64_t> out(static_cast<std::size_t>(stored.info.bytes) / size);
        for (std::size_t i = 0; i < out.size(); ++i) {
            std::int32_t narrow = 0;
            if (wide)
                std::memcpy(&out[i], stored.data + i * size, size);
            else
                std::memcpy(&narrow, stored.data + i * size, size);
            if (!wide) out[i] = narrow;
        }
        return out;
    }

  private:
    GgufFile file_;
    int head_dim_;
    TensorIndex<Entry> entries_;
};

}  // namespace

std::unique_ptr<WeightSource> make_gguf_weights(GgufFile file, const ModelConfig& config, bool permuted_qk) {
    return std::make_unique<GgufWeights>(std::move(file), config.head_dim, permuted_qk);
}

}  // namespace draftscope
