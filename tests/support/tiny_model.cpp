#include "tests/support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "base/rng.h"

namespace draftscope::testing {
namespace {

struct MemoryTensor {
    TensorInfo info;
    std::vector<float> values;
};

class MemoryWeights final : public WeightSource {
  public:
    void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
        MemoryTensor tensor{{name, "F32", std::move(shape), values.size() * sizeof(float)},
                            std::move(values)};
        tensors_.emplace(name, std::move(tensor));
    }
    const std::string& path() const override { return path_; }
    const TensorInfo* find(std::string_view name) const override {
        const auto found = tensors_.find(name);
        return found == tensors_.end() ? nullptr : &found->second.info;
    }
    std::vector<std::string> names() const override {
        std::vector<std::string> out;
        for (const auto& [name, tensor] : tensors_) out.push_back(name);
        return out;
    }
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        const std::vector<float>& values = tensors_.find(tensor.name)->second.values;
        const auto width = static_cast<std::size_t>(tensor.cols());
        std::memcpy(out, values.data() + numel(row, width), width * sizeof(float));
    }

  private:
    std::string path_ = "(tiny model in memory)";
    std::map<std::string, MemoryTensor, std::less<>> tensors_;
};

/// Each tensor has a separate random stream, so that adding one does not change the others.
class WeightMaker {
  public:
    WeightMaker(MemoryWeights& out, std::uint64_t seed) : out_(out), seed_(seed) {}

    /// Adds a matrix [rows, cols] of normal values with standard deviation `deviation`.
    void matrix(const std::string& name, int rows, int cols, float deviation) {
        Rng rng(seed_, stream_++);
        std::vector<float> values(numel(rows, cols));
        for (float& value : values) value = deviation * static_cast<float>(rng.normal());
        out_.add(name, {rows, cols}, std::move(values));
    }
    /// Adds a vector [size] of values around 1.
    void norm(const std::string& name, int size) {
        Rng rng(seed_, stream_++);
        std::vector<float> values(static_cast<std::size_t>(size));
        for (float& value : values) value = 1.0f + 0.1f * static_cast<float>(rng.normal());
        out_.add(name, {size}, std::move(values));
    }

  private:
    MemoryWeights& out_;
    std::uint64_t seed_;
    std::uint64_t stream_ = 1;
};

void make_layer(WeightMaker& make, const TinyModelOptions& o, int layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const int q = o.heads * o.head_dim;
    const int kv = o.kv_heads * o.head_dim;
    const auto unit = [](int inputs) { return 1.0f / std::sqrt(static_cast<float>(inputs)); };
    make.norm(prefix + "attn_norm.weight", o.hidden);
    // A gain above 1 makes the scores sharp, so that attention selects positions instead of averaging all.
    make.matrix(prefix + "attn_q.weight", q, o.hidden, 1.6f * unit(o.hidden));
    make.matrix(prefix + "attn_k.weight", kv, o.hidden, 1.6f * unit(o.hidden));
    make.matrix(prefix + "attn_v.weight", kv, o.hidden, 1.5f * unit(o.hidden));
    make.matrix(prefix + "attn_output.weight", o.hidden, q, 1.5f * unit(q));
    make.norm(prefix + "ffn_norm.weight", o.hidden);
    make.matrix(prefix + "ffn_gate.weight", o.ffn, o.hidden, 1.5f * unit(o.hidden));
    make.matrix(prefix + "ffn_up.weight", o.ffn, o.hidden, unit(o.hidden));
    make.matrix(prefix + "ffn_down.weight", o.hidden, o.ffn, unit(o.ffn));
}

ModelConfig make_config(const TinyModelOptions& o) {
    ModelConfig config;
    config.architecture = "llama";
    config.name = "tiny";
    config.layers = o.layers;
    config.hidden = o.hidden;
    config.heads = o.heads;
    config.kv_heads = o.kv_heads;
    config.head_dim = o.head_dim;
    config.ffn = o.ffn;
    config.vocab = o.vocab;
    config.context = o.context;
    config.tied_head = o.tied_head;
    return config;
}

}  // namespace

ModelFile make_tiny_model(std::uint64_t seed, const TinyModelOptions& o) {
    auto weights = std::make_unique<MemoryWeights>();
    WeightMaker make(*weights, seed);
    const float head_deviation = o.logit_scale / std::sqrt(static_cast<float>(o.hidden));
    make.matrix("token_embd.weight", o.vocab, o.hidden, o.tied_head ? head_deviation : 1.0f);
    make.norm("output_norm.weight", o.hidden);
    if (!o.tied_head) make.matrix("output.weight", o.vocab, o.hidden, head_deviation);
    for (int layer = 0; layer < o.layers; ++layer) make_layer(make, o, layer);
    ModelFile file;
    file.config = make_config(o);
    file.weights = std::move(weights);
    file.quantisation = "F32";
    return file;
}

}  // namespace draftscope::testing
